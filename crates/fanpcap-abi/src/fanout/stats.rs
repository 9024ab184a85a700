//! pcap_fanout_stats: what is known of a member and its group.

use crate::handles::{self, Entry};
use crate::message::guard_handle;
use crate::pcap_handle::PcapHandle;
use crate::stats::total;
use crate::system::Pcap;
use fanpcap_config::steering::{COUNTERS as ALL, Counts};
use fanpcap_group::group_stats::GroupStats;
use std::ffi::c_int;
use std::mem;

const RECEIVED: u32 = 0x01;
const DROPPED: u32 = 0x02;
const MEMBERS: u32 = 0x04;
const GROUP_RECEIVED: u32 = 0x08;
const GROUP_DROPPED: u32 = 0x10;
const COUNTERS: u32 = 0x20;
const GROUP_COUNTERS: u32 = 0x40;
const LATE: u32 = 0x80;

/// Bytes of the struct in the extension's first release, which had no counters of programs.
const FIRST_SIZE: usize = mem::offset_of!(Stat, counters);

/// `struct pcap_fanout_stat`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Bytes of the caller's struct.
    pub size: usize,
    /// Which fields are known, `PCAP_FANOUT_STAT_*`.
    pub valid: u32,
    /// The group joined.
    pub group: i32,
    /// Packets that reached this member, dropped ones included.
    pub received: u64,
    /// Of these, lost because this member's ring was full.
    pub dropped: u64,
    /// Sockets in the group.
    pub members: u64,
    /// Sum of `received` over the members.
    pub group_received: u64,
    /// Sum of `dropped` over the members.
    pub group_dropped: u64,
    /// Age of the oldest counters in the sums, nanoseconds; of the group's late fragments too.
    pub group_age_ns: u64,
    /// The steering program's counters, of this member.
    pub counters: Counts,
    /// Their sums over the members.
    pub group_counters: Counts,
    /// Later fragments that came before the first of their datagram.
    pub late: u64,
}

/// See pcap_fanout_stats(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fanout_stats(p: *mut Pcap, stat: *mut Stat) -> c_int {
    // SAFETY: the caller's promise: `p` is an open handle.
    let p = unsafe { PcapHandle::new(p) };
    guard_handle(p, || {
        // SAFETY: the caller's promise: null, or a struct whose first word is its size.
        let size = unsafe { stat.cast::<usize>().as_ref() }
            .copied()
            .unwrap_or(0);
        if size < FIRST_SIZE {
            return p.fail("pcap_fanout_stats: set size to sizeof(struct pcap_fanout_stat)");
        }
        match stats(p, size) {
            Some(known) => {
                let from: *const u8 = (&raw const known).cast();
                let len = size.min(mem::size_of::<Stat>());
                // SAFETY: the caller's struct has `size` bytes, and ours so many; what later
                // versions add stays.
                unsafe { stat.cast::<u8>().copy_from_nonoverlapping(from, len) };
                0
            }
            None => p.fail("pcap_fanout_stats: the handle is in no fan-out group"),
        }
    })
}

fn stats(p: PcapHandle, size: usize) -> Option<Stat> {
    let identity = handles::identity(p)?;
    let mut stat = Stat::new(size, identity.group());
    if total(p).is_ok() {
        let counters = |entry: &mut Entry| Some(entry.member.as_ref()?.0.counters());
        let counters = handles::with(p, counters).flatten()?;
        stat.received = counters.received;
        stat.dropped = counters.dropped;
        stat.valid |= RECEIVED | DROPPED;
    }
    if let Some(steered) = handles::steered(p) {
        steered.publish();
        if let Some((counts, _)) = steered.counted() {
            stat.counters = counts;
            stat.valid |= COUNTERS;
        }
    }
    handles::refresh_beside(p, &identity);
    stat.add_group(&identity.group_stats());
    if !stat.has_counters() {
        stat.valid &= !(COUNTERS | GROUP_COUNTERS | LATE);
    }
    Some(stat)
}

impl Stat {
    /// Of a member of this group; nothing is known yet.
    fn new(size: usize, group: u16) -> Self {
        Self {
            size,
            valid: 0,
            group: group.into(),
            received: 0,
            dropped: 0,
            members: 0,
            group_received: 0,
            group_dropped: 0,
            group_age_ns: 0,
            counters: [0; ALL],
            group_counters: [0; ALL],
            late: 0,
        }
    }

    /// Whether the caller's struct has room for programs' counters.
    fn has_counters(&self) -> bool {
        self.size >= mem::size_of::<Self>()
    }

    fn add_group(&mut self, whole: &GroupStats) {
        if let Some(members) = whole.members {
            self.members = members;
            self.valid |= MEMBERS;
        }
        self.group_age_ns = match self.has_counters() {
            true => whole.age_ns.max(whole.counts_age_ns),
            false => whole.age_ns,
        };
        if let Some(counters) = whole.counters {
            self.group_received = counters.received;
            self.group_dropped = counters.dropped;
            self.valid |= GROUP_RECEIVED | GROUP_DROPPED;
        }
        if let Some(counts) = whole.counts {
            self.group_counters = counts;
            self.valid |= GROUP_COUNTERS;
        }
        if let Some(late) = whole.late {
            self.late = late;
            self.valid |= LATE;
        }
    }
}
