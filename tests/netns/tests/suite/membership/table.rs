//! The table of a steered group, read from the kernel's BPF map. It says which slot owns each
//! bucket. A group over several devices has one table for each device. The tables of the other
//! devices follow that of the first.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use fanpcap_group::view::{GroupTable, View};
use fanpcap_linux::process::pidfd::Process;
use fanpcap_linux::{bpf, interface};
use fanpcap_netns::DEVICE;
use fanpcap_testkit::await_for::LIMIT;

/// The contents of a group's table on the tests' device.
pub(super) fn view(group: u16) -> Result<View> {
    let ifindex = interface::index(DEVICE).context("no device")?;
    let table = GroupTable::find(ifindex, group, LIMIT).map_err(anyhow::Error::msg)?;
    table.context("no table")?.look().context("no view")
}

/// The number of buckets. The buckets are the table's first bytes.
pub(super) const BUCKETS: usize = 4096;
/// The length of the table on packet sockets, and on the XDP engine.
const LENS: [u32; 2] = [98_304, 393_216];

/// The tables of a group, mapped into the memory of the test's process.
pub(super) struct Table(Vec<bpf::Table>);

/// The owner of each bucket at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owners(Vec<u8>);

impl Table {
    /// The tables of a member's group.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let process = Process::open(pid)?;
        let numbers = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
        let tables = numbers.filter_map(|entry| {
            let link = fs::read_link(entry.path()).ok()?;
            let is_map = link.as_os_str() == "anon_inode:bpf-map";
            let number = entry.file_name().to_str()?.parse().ok()?;
            let map = is_map.then(|| process.duplicate(number).ok())??;
            let open = |len: &u32| bpf::Table::open(map.try_clone().ok()?, *len).ok();
            LENS.iter().find_map(open)
        });
        let tables: Vec<bpf::Table> = tables.collect();
        ensure!(!tables.is_empty(), "the member has no table");
        Ok(Self(tables))
    }

    /// The owners in the first table.
    pub(super) fn owners(&self) -> Owners {
        Owners::in_map(&self.0[0])
    }

    /// Whether the other tables divide the buckets in the same way, by their own slots.
    pub(super) fn is_followed(&self) -> bool {
        let first = self.owners();
        self.0[1..]
            .iter()
            .all(|table| first.is_alike(&Owners::in_map(table)))
    }
}

impl Owners {
    fn in_map(table: &bpf::Table) -> Self {
        let buckets = table.bytes().iter().take(BUCKETS);
        Self(buckets.map(|slot| slot.load(Ordering::Acquire)).collect())
    }

    /// Whether both tables divide the buckets equally: two buckets have one owner in this table
    /// exactly if they have one owner in `other`.
    fn is_alike(&self, other: &Self) -> bool {
        let both = || self.0.iter().zip(&other.0);
        let there: BTreeMap<_, _> = both().collect();
        let here: BTreeMap<_, _> = both().map(|(here, there)| (there, here)).collect();
        both().all(|(one, two)| there[one] == two && here[two] == one)
    }

    /// The slot that owns a bucket.
    pub(super) fn of(&self, bucket: usize) -> u8 {
        self.0[bucket]
    }

    /// The number of buckets that each slot owns, without slots that own no bucket.
    pub(super) fn shares(&self) -> BTreeMap<u8, usize> {
        let mut shares = BTreeMap::new();
        for slot in &self.0 {
            *shares.entry(*slot).or_insert(0) += 1;
        }
        shares
    }

    /// The owners after slots have got new numbers.
    pub(super) fn renumbered(&self, new: &BTreeMap<u8, u8>) -> Self {
        let number = |slot| new.get(slot).copied().unwrap_or(u8::MAX);
        Self(self.0.iter().map(number).collect())
    }

    /// The old and the new slot of each bucket that has moved.
    pub(super) fn moved(&self, now: &Self) -> Vec<(u8, u8)> {
        let both = self.0.iter().copied().zip(now.0.iter().copied());
        both.filter(|(before, now)| before != now).collect()
    }
}
