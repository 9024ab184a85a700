//! Reports the node's counts to the analyzers, once a second.
//!
//! A lost report only delays the account by a second, because counts only grow, and the next report
//! has all of them. Each analyzer gets the counts of its own buckets.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_cluster::loss_account::{Beacon, Report, Summary};
use fanpcap_cluster::{Announcement, NodeId, Revision};
use fanpcap_linux::wait::clock::{self, realtime_ns};
use fanpcap_select::native::Causes;

use super::capture::Capture;
use super::kernel::Kernel;
use super::say;
use crate::selector::Counts;
use crate::shipping::Shipper;

/// The time between reports.
const EVERY: Duration = Duration::from_secs(1);

/// If reading all counts takes longer than this, in nanoseconds, the agent was stopped or had no
/// CPU, and the time of the counts is uncertain. Analyzers compare the counts of different nodes
/// with an accuracy of 100 ms.
const AT_ONCE: u64 = 20_000_000;

/// Maximum number of times that the counts are read for one report.
const READINGS: usize = 5;

#[derive(Debug)]
pub(super) struct Reporter {
    announcement: Announcement,
    to: ReportTransport,
    last: Option<Instant>,
    floor: Floor,
}

/// How counts get to the analyzers.
#[derive(Debug)]
pub(super) enum ReportTransport {
    /// The thread that ships records also ships the counts.
    Capture(Capture),
    /// A shipper that ships only counts.
    Counts(Box<Shipper>),
}

impl Reporter {
    pub(super) fn new(announcement: Announcement, to: ReportTransport) -> Self {
        Self {
            announcement,
            to,
            last: None,
            floor: Floor::default(),
        }
    }

    pub(super) const fn node(&self) -> NodeId {
        self.announcement.node
    }

    /// The thread that ships records, in capture mode.
    pub(super) fn capture(&self) -> Option<&Capture> {
        match &self.to {
            ReportTransport::Capture(capture) => Some(capture),
            ReportTransport::Counts(_) => None,
        }
    }

    /// From now on, sends reports and records to these analyzers.
    pub(super) fn follow(&mut self, analyzers: &[SocketAddr]) {
        match &mut self.to {
            ReportTransport::Capture(capture) => capture.follow(analyzers),
            ReportTransport::Counts(shipper) => {
                if let Err(error) = shipper.follow(analyzers) {
                    say(&format!("counts still go to the old analyzers: {error}"));
                }
            }
        }
    }

    /// Reports the counts if a report is due. Returns the sums if the counts were read.
    pub(super) fn tick(&mut self, kernel: &Kernel, revision: Revision) -> Option<Sums> {
        if self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return None;
        }
        self.last = Some(Instant::now());
        let read = || Some(kernel.selector()?.counts());
        let (mut counts, stamp) = at_one_time(read, realtime_ns)?;
        let sums = self.floor.sums(kernel.since(), &mut counts);
        let report = self.report(kernel, revision, (counts, stamp))?;
        match &mut self.to {
            ReportTransport::Capture(capture) => capture.report(report),
            ReportTransport::Counts(shipper) => shipper.report(report),
        }
        Some(sums)
    }

    fn report(
        &self,
        kernel: &Kernel,
        revision: Revision,
        (counts, stamp): (Counts, u64),
    ) -> Option<Report> {
        let selector = kernel.selector()?;
        let beacon = selector.last_beacon().map(|beacon| Beacon {
            sequence: beacon.sequence,
            seen: beacon.came_ns.wrapping_add(clock::realtime_offset_ns()),
        });
        let summary = Summary {
            node: self.announcement.node,
            boot: self.announcement.boot,
            since: kernel.since(),
            stamp,
            revision,
            ring: counts.causes.lost,
            beacon: beacon.unwrap_or_default(),
        };
        Some(Report {
            summary,
            seen: counts.seen,
            captured: counts.captured,
        })
    }
}

/// Reads until one reading takes no longer than `AT_ONCE`. Returns this reading and the time of its
/// end. Returns `None` if each reading took longer, or if there is nothing to read.
fn at_one_time<T>(
    mut read: impl FnMut() -> Option<T>,
    mut now: impl FnMut() -> u64,
) -> Option<(T, u64)> {
    (0..READINGS).find_map(|_| {
        let begin = now();
        let counts = read()?;
        let end = now();
        (end.checked_sub(begin)? <= AT_ONCE).then_some((counts, end))
    })
}

/// Keeps the highest value so far of each number that is a difference between counters. The agent
/// reads the counters one by one. So while packets come, each difference is a lower bound of the
/// true number, and may be lower than in the last reading. But analyzers and Prometheus take a
/// falling number for a restart of the counters. So the agent reports the highest value.
#[derive(Debug, Default)]
struct Floor {
    /// The time at which the counters were 0.
    since: u64,
    /// The captured packets of each bucket, including packets that the filter dropped.
    captured: Vec<u64>,
    /// How many packets of all buckets were captured and passed the filter.
    passed: u64,
}

impl Floor {
    /// Replaces each count that is less than an earlier count by the earlier one. Returns the sums.
    fn sums(&mut self, since: u64, counts: &mut Counts) -> Sums {
        if self.since != since || self.captured.is_empty() {
            *self = Self {
                since,
                captured: vec![0; BUCKETS],
                passed: 0,
            };
        }
        for (count, floor) in counts.captured.iter_mut().zip(&mut self.captured) {
            *floor = (*floor).max(*count);
            *count = *floor;
        }
        let captured: u64 = self.captured.iter().sum();
        let Causes {
            beacons,
            updates,
            forged,
            lost,
            filtered,
            ..
        } = counts.causes;
        self.passed = self.passed.max(captured.saturating_sub(filtered));
        let seen = counts.seen.iter().sum();
        Sums {
            seen,
            captured: self.passed,
            elsewhere: seen.saturating_sub(counts.own),
            filtered,
            ring: lost,
            beacons,
            updates,
            forged,
        }
    }
}

/// Sums over all buckets since the counters were 0. Each number only grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sums {
    pub(super) seen: u64,
    /// Packets that were passed on or written into a ring.
    pub(super) captured: u64,
    /// Packets that other nodes have to capture.
    pub(super) elsewhere: u64,
    /// Packets of this node that the cluster's filter dropped.
    pub(super) filtered: u64,
    pub(super) ring: u64,
    pub(super) beacons: u64,
    pub(super) updates: u64,
    pub(super) forged: u64,
}

#[cfg(test)]
mod tests;
