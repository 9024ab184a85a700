//! What a group on the XDP engine has counted, for who is no member and must know it when the
//! group's last member has been killed: the counters' maps would go with that member.

use crate::found;
use crate::on_xdp::before_at;
use crate::page::MemberId;
use crate::record::Record;
use crate::shared::{self, group_key};
use crate::table::Table;
use fanpcap_linux::bpf;
use fanpcap_linux::process::pidfd::Process;
use fanpcap_xdp::HeldCounters;
use std::io;

/// The counters of one group, and the table that says whose they are.
#[derive(Debug)]
pub struct GroupCounters {
    table: bpf::Table,
    held: HeldCounters,
}

impl GroupCounters {
    /// Those of the group of a member with this page on a device, which keeps nothing alive but the
    /// maps.
    ///
    /// # Errors
    /// `NotFound` if the member is not in its slot, or not yet; `EPERM` when the caller may not
    /// trace its process.
    pub fn of_member(
        ifindex: u32,
        group: u16,
        record: &Record,
        member: MemberId,
    ) -> io::Result<Self> {
        let key = group_key(ifindex, group);
        let table = found::take_over(record, key, shared::table_alone)?;
        let table = table.ok_or(io::ErrorKind::NotFound)?;
        let place = place(shared::table(&table), member);
        let (slot, cookie) = place.ok_or(io::ErrorKind::NotFound)?;
        let process = Process::open(record.pid)?;
        let held = HeldCounters::of_member(&process, record.pid, slot, cookie)?;
        Ok(Self { table, held })
    }

    /// What was counted for a member since it came: packets for it, dropped ones included, and
    /// dropped ones. `None` when its slot is another's.
    pub fn counted(&self, member: MemberId) -> Option<[u64; 2]> {
        let table = shared::table(&self.table);
        let (slot, cookie) = place(table, member)?;
        let counts = self.held.slot_counts(slot);
        let now = [counts.produced.wrapping_add(counts.dropped), counts.dropped];
        let before = before_at(fanpcap_buckets::Slot(slot));
        let is_its = self.held.is_of(slot, cookie);
        is_its.then(|| std::array::from_fn(|it| now[it].wrapping_sub(table.get(before + it))))
    }

    /// Packets for which the group had no member.
    pub fn no_member(&self) -> u64 {
        self.held.group_counts().no_member
    }

    /// Packets that came to the group.
    pub fn offered(&self) -> u64 {
        self.held.group_counts().offered
    }
}

/// The slot of a member, and its socket (`SO_COOKIE`).
fn place(table: Table<'_>, member: MemberId) -> Option<(u8, u64)> {
    let mut rows = table.rows();
    rows.find_map(|(slot, row)| (row.member == member.socket()).then_some((slot.0, row.cookie)))
}
