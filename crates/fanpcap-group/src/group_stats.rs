//! Sums the counters of all pages of a group.

use crate::page::MemberId;
use crate::record::{MemberCounters, Record, Running};
use fanpcap_config::steering::Counts;
use fanpcap_linux::wait::clock;
use fanpcap_steer::ir::COUNTERS;

/// Statistics of a whole group. A value that is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// The number of living members in all processes.
    pub members: Option<u64>,
    /// Sums over the members, if each member has published its counters. In a group with a steering
    /// program, the sums include the members that are gone.
    pub counters: Option<MemberCounters>,
    /// Age of the oldest counters in the sums, in nanoseconds; 0 if there are no sums.
    pub age_ns: u64,
    /// Age of the oldest counters in `counts`, in nanoseconds; 0 if no counters in `counts` can
    /// change.
    pub counts_age_ns: u64,
    /// Sums over the counters of the steering program, if each member has published its counters.
    pub counts: Option<Counts>,
    /// Fragments that came before the first fragment of the same datagram; `None` if the member
    /// that counts them is gone.
    pub late: Option<u64>,
}

/// The members of a steered group that are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departed {
    /// Members whose sockets are still in the group.
    pub(crate) sockets: Vec<MemberId>,
    /// Sums over these members; `None` while the counters of at least one of them are unknown.
    pub(crate) counters: Option<MemberCounters>,
}

impl Default for Departed {
    /// In a group without a steering program no socket outlives its member, and no member's
    /// counters include packets of other members.
    fn default() -> Self {
        Self {
            sockets: Vec::new(),
            counters: Some(MemberCounters::default()),
        }
    }
}

impl GroupStats {
    /// Sums up the pages of these members, which the roster lists.
    pub(crate) fn of(
        mut members: Option<Vec<MemberId>>,
        pages: Vec<(MemberId, Record)>,
        departed: &Departed,
    ) -> Self {
        if let Some(members) = &mut members {
            members.retain(|member| !departed.sockets.contains(member));
        }
        let members = members.as_deref();
        let told = Self {
            members: members.map(|members| members.len() as u64),
            ..Self::default()
        };
        let founder = pages.iter().find(|(_, page)| page.is_founder);
        let founder = founder.and_then(|(_, page)| page.steering.clone());
        let Some(records) = members.and_then(|members| of_members(members, pages)) else {
            return told;
        };
        let oldest = records.iter().map(|record| record.read_ns).min();
        let now = clock::monotonic_ns();
        let known = oldest.filter(|&oldest| oldest > 0);
        let programs = records.iter().map(|record| record.steering.as_ref());
        let founder = founder.as_ref().map(Some);
        let programs: Option<Vec<&Running>> = programs.chain(founder).collect();
        let counted = programs.as_deref().and_then(oldest_count);
        let age = |oldest: Option<u64>| oldest.map_or(0, |oldest| now.saturating_sub(oldest));
        Self {
            counters: known.and(departed.counters).map(|gone| sum(gone, &records)),
            age_ns: age(known),
            counts_age_ns: age(counted),
            counts: programs.as_deref().and_then(sum_counts),
            late: programs.as_deref().and_then(sum_late),
            ..told
        }
    }
}

/// The records of `members`, if there is at least one and each has a page. Pages of other sockets
/// do not count: their owners are about to join, or have failed to join.
fn of_members(members: &[MemberId], mut pages: Vec<(MemberId, Record)>) -> Option<Vec<Record>> {
    let records = members.iter().map(|member| {
        let place = pages.iter().position(|(id, _)| id == member)?;
        Some(pages.swap_remove(place).1)
    });
    records
        .collect::<Option<Vec<_>>>()
        .filter(|records| !records.is_empty())
}

fn sum(gone: MemberCounters, records: &[Record]) -> MemberCounters {
    // The sums must not overflow: other processes may have written any value.
    let add = |sum: MemberCounters, record: &Record| MemberCounters {
        received: sum.received.saturating_add(record.counters.received),
        dropped: sum.dropped.saturating_add(record.counters.dropped),
    };
    records.iter().fold(gone, add)
}

/// Sums over the counters of the steering program, if all members have published theirs.
fn sum_counts(programs: &[&Running]) -> Option<Counts> {
    let mut sums = [0_u64; COUNTERS];
    for running in programs {
        (running.counted_ns > 0).then_some(())?;
        for (sum, count) in sums.iter_mut().zip(running.counters) {
            *sum = sum.wrapping_add(count);
        }
    }
    Some(sums)
}

/// When the oldest counters that can change were read.
fn oldest_count(programs: &[&Running]) -> Option<u64> {
    let counted = programs.iter().map(|running| running.counted_ns);
    counted.filter(|&counted_ns| counted_ns > 0).min()
}

/// Late fragments of the members that have attached the steering program; `None` if there is no
/// such member.
fn sum_late(programs: &[&Running]) -> Option<u64> {
    let setters = programs.iter().filter(|running| running.has_set);
    let late = setters.map(|running| running.late);
    late.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests;
