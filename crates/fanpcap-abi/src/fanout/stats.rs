//! pcap_fanout_stats: the statistics of a member and its group.

use crate::handles::{self, Entry};
use crate::message::guard_handle;
use crate::pcap_handle::PcapHandle;
use crate::stats::total;
use fanpcap_group::group_stats::GroupStats;
use fanpcap_pcap::FanoutStat;
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
const STEERED_NOWHERE: u32 = 0x100;

/// See pcap_fanout_stats(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fanout_stats(p: PcapHandle, stat: *mut FanoutStat) -> c_int {
    guard_handle(p, || {
        // SAFETY: the caller's promise: null, or a struct whose first word is its size.
        let size = unsafe { stat.cast::<usize>().as_ref() }
            .copied()
            .unwrap_or(0);
        if size < FanoutStat::FIRST_SIZE {
            return p.fail("pcap_fanout_stats: set size to sizeof(struct pcap_fanout_stat)");
        }
        match stats(p, size) {
            Some(known) => {
                let from: *const u8 = (&raw const known).cast();
                let len = size.min(mem::size_of::<FanoutStat>());
                // SAFETY: the caller's struct has `size` bytes, and ours at least `len`. Fields
                // that later versions add stay unchanged.
                unsafe { stat.cast::<u8>().copy_from_nonoverlapping(from, len) };
                0
            }
            None => p.fail("pcap_fanout_stats: the handle is in no fan-out group"),
        }
    })
}

fn stats(p: PcapHandle, size: usize) -> Option<FanoutStat> {
    if let Some(polled) = handles::polled(p) {
        // The poller tells its members nothing of the others.
        let mut stat = FanoutStat::new(size, polled.joined.group.into());
        [stat.received, stat.dropped] = polled.io.counted();
        stat.valid = RECEIVED | DROPPED;
        return Some(stat);
    }
    let identity = handles::identity(p)?;
    let mut stat = FanoutStat::new(size, identity.group().into());
    if total(p).is_ok() {
        let counters = |entry: &mut Entry| {
            let (member, _) = entry.member.as_ref()?;
            let on_engine = member
                .membership()
                .and_then(|membership| membership.counted());
            Some(on_engine.unwrap_or_else(|| member.counters()))
        };
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
    let membership = handles::membership(p);
    if let Some(membership) = membership
        .as_ref()
        .filter(|_| size >= mem::size_of::<FanoutStat>())
    {
        stat.steered_nowhere = membership.nowhere();
        stat.valid |= STEERED_NOWHERE;
    }
    // Read the counters of departed members first. If a member leaves between the two readings, the
    // sums lack this member's counters, but they never include them twice.
    let departed = membership
        .map(|membership| membership.departed())
        .unwrap_or_default();
    add_group(&mut stat, &identity.group_stats(&departed));
    if !has_counters(&stat) {
        stat.valid &= !(COUNTERS | GROUP_COUNTERS | LATE);
    }
    Some(stat)
}

/// Whether the caller's struct has room for the counters of a steering program.
fn has_counters(stat: &FanoutStat) -> bool {
    stat.size >= FanoutStat::SECOND_SIZE
}

fn add_group(stat: &mut FanoutStat, whole: &GroupStats) {
    if let Some(members) = whole.members {
        stat.members = members;
        stat.valid |= MEMBERS;
    }
    stat.group_age_ns = match has_counters(stat) {
        true => whole.age_ns.max(whole.counts_age_ns),
        false => whole.age_ns,
    };
    if let Some(counters) = whole.counters {
        stat.group_received = counters.received;
        stat.group_dropped = counters.dropped;
        stat.valid |= GROUP_RECEIVED | GROUP_DROPPED;
    }
    if let Some(counts) = whole.counts {
        stat.group_counters = counts;
        stat.valid |= GROUP_COUNTERS;
    }
    if let Some(late) = whole.late {
        stat.late = late;
        stat.valid |= LATE;
    }
}
