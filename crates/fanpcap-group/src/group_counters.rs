//! The counters of a group on an engine, for a process that is not a member. The process keeps the
//! maps alive, so that it can read the counters even after the last member was killed.

use crate::found;
use crate::page::MemberId;
use crate::record::Record;
use crate::shared::{self, group_key};
use crate::table::{Table, at};
use fanpcap_buckets::Slot;
use fanpcap_engine::WatchedCounters;
use fanpcap_linux::memory::Memory;
use fanpcap_linux::process::pidfd::Process;
use std::collections::BTreeSet;
use std::io;

/// The counters of one group, and the table that names their members.
#[derive(Debug)]
pub struct GroupCounters {
    table: Memory,
    counters: Box<dyn WatchedCounters>,
}

impl GroupCounters {
    /// Opens the counters of a member's group on a device, from the member's page. Keeps only the
    /// maps alive.
    ///
    /// # Errors
    /// `NotFound` if the member has no slot, or has not entered its slot yet; `EPERM` if the caller
    /// may not trace the member's process.
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
        let engine = fanpcap_engines::watcher(shared::table(&table).get(at::ENGINE));
        let engine = engine.ok_or(io::ErrorKind::Unsupported)?;
        let counters = engine.watch_counters(&process, record.pid, slot, cookie)?;
        Ok(Self { table, counters })
    }

    /// How many packets came for a member since it joined, dropped ones included, and how many were
    /// dropped. `None` if another member has the slot.
    pub fn counted(&self, member: MemberId) -> Option<[u64; 2]> {
        let table = shared::table(&self.table);
        let (slot, cookie) = place(table, member)?;
        let now = self.counters.counted(slot, cookie)?;
        Some(shared::since(table, Slot(slot), now))
    }

    /// Stops the packets of a member, which keeps its rings. Packets in flight may still come into
    /// the rings. Does nothing if another member has the slot.
    pub fn stop(&self, member: MemberId) {
        if let Some((slot, cookie)) = place(shared::table(&self.table), member) {
            self.counters.stop(slot, cookie);
        }
    }

    /// Packets for which the group had no member.
    pub fn no_member(&self) -> u64 {
        self.counters.ledger().no_member
    }

    /// Packets that the steering program dropped.
    pub fn nowhere(&self) -> u64 {
        self.counters.ledger().nowhere
    }

    /// Whether `members` has all members that the group has had so far.
    pub fn has_had_only(&self, members: &BTreeSet<MemberId>) -> bool {
        shared::table(&self.table).has_had_only(members)
    }

    /// Packets that came to the group.
    pub fn offered(&self) -> u64 {
        self.counters.ledger().offered
    }
}

/// The slot of a member, and the cookie of its socket (`SO_COOKIE`).
fn place(table: Table<'_>, member: MemberId) -> Option<(u8, u64)> {
    let mut rows = table.rows();
    rows.find_map(|(slot, row)| (row.member == member.socket()).then_some((slot.0, row.cookie)))
}
