//! What the pages of all members add up to: the counters of a whole group.

use crate::page::MemberId;
use crate::record::{Counters, Record, Running};
use fanpcap_config::steering::Counts;
use fanpcap_linux::wait::clock;
use fanpcap_steer::ir::COUNTERS;
use std::collections::BTreeMap;

/// What is known of a whole group; what is not, is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Sockets in the group, of all processes.
    pub members: Option<u64>,
    /// Sums over the members, when each of them has published its counters.
    pub counters: Option<Counters>,
    /// Age of the oldest counters in the sums, in nanoseconds; 0 where there are none.
    pub age_ns: u64,
    /// The same of the program's counters and the late fragments.
    pub counts_age_ns: u64,
    /// Sums over the program's counters, when each member has published its own.
    pub counts: Option<Counts>,
    /// Later fragments that came before the first of their datagram, if the member lives whose copy
    /// of the program meets them.
    pub late: Option<u64>,
}

impl GroupStats {
    /// The sums over these members, which the roster lists, by these pages.
    pub(crate) fn of(members: Option<&[MemberId]>, pages: Vec<(MemberId, Record)>) -> Self {
        let told = Self {
            members: members.map(|members| members.len() as u64),
            ..Self::default()
        };
        let Some(records) = members.and_then(|members| of_members(members, pages)) else {
            return told;
        };
        let oldest = records.iter().map(|record| record.read_ns).min();
        let now = clock::monotonic_ns();
        let known = oldest.filter(|&oldest| oldest > 0);
        let programs: Option<Vec<&Running>> = records
            .iter()
            .map(|record| record.steering.as_ref())
            .collect();
        let counted = programs.as_deref().and_then(oldest_count);
        let age = |oldest: Option<u64>| oldest.map_or(0, |oldest| now.saturating_sub(oldest));
        Self {
            counters: known.map(|_| sum(&records)),
            age_ns: age(known),
            counts_age_ns: age(counted),
            counts: programs.as_deref().and_then(sum_counts),
            late: programs.as_deref().and_then(sum_late),
            ..told
        }
    }
}

/// The records of the sockets in `members`, one at least, if each has a page. A page of another
/// socket says nothing of the group: its owner is about to join, or has failed to.
fn of_members(members: &[MemberId], pages: Vec<(MemberId, Record)>) -> Option<Vec<Record>> {
    let mut pages: BTreeMap<MemberId, Record> = pages.into_iter().collect();
    let records = members.iter().map(|member| pages.remove(member));
    records
        .collect::<Option<Vec<_>>>()
        .filter(|records| !records.is_empty())
}

fn sum(records: &[Record]) -> Counters {
    // What others have written may be anything.
    let add = |sum: Counters, record: &Record| Counters {
        received: sum.received.saturating_add(record.counters.received),
        dropped: sum.dropped.saturating_add(record.counters.dropped),
    };
    records.iter().fold(Counters::default(), add)
}

/// Sums over the programs' counters, when all have published theirs.
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

/// When the oldest of the programs' counters was read that may have changed since.
fn oldest_count(programs: &[&Running]) -> Option<u64> {
    let counted = programs.iter().map(|running| running.counted_ns);
    counted.filter(|&counted_ns| counted_ns > 0).min()
}

/// All late fragments, when a member tells of them that has set the program.
fn sum_late(programs: &[&Running]) -> Option<u64> {
    let setters = programs.iter().filter(|running| running.has_set);
    let late = setters.map(|running| running.late);
    late.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests;
