//! Reports the node's counts to the analyzers, once a second.
//!
//! A lost report only delays the account by a second: counts only grow, and the next report has
//! them all. Each analyzer gets its buckets.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

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

/// If reading all counts takes longer, in nanoseconds, the time of the counts is uncertain: the
/// process was stopped, or had no CPU. Analyzers compare the counts of nodes to within 100 ms.
const AT_ONCE: u64 = 20_000_000;

/// How often the counts are read for one report.
const READINGS: usize = 5;

/// Reports the node's counts to the analyzers.
#[derive(Debug)]
pub(super) struct Reporter {
    announcement: Announcement,
    to: ReportTransport,
    last: Option<Instant>,
}

/// How counts get to the analyzers.
#[derive(Debug)]
pub(super) enum ReportTransport {
    /// Together with the records.
    Capture(Capture),
    /// Alone.
    Counts(Box<Shipper>),
}

impl Reporter {
    pub(super) fn new(announcement: Announcement, to: ReportTransport) -> Self {
        Self {
            announcement,
            to,
            last: None,
        }
    }

    /// The node that reports.
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

    /// Reports to these analyzers from now on; records go there too.
    pub(super) fn follow(&mut self, analyzers: &[SocketAddr]) {
        match &mut self.to {
            ReportTransport::Capture(capture) => capture.follow(analyzers),
            ReportTransport::Counts(shipper) => {
                if let Err(error) = shipper.follow(analyzers) {
                    say(&format!("counts go where they went before: {error}"));
                }
            }
        }
    }

    /// Reports the counts, if that is due. Returns the sums, if they were read.
    pub(super) fn tick(&mut self, kernel: &Kernel, revision: Revision) -> Option<Sums> {
        if self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return None;
        }
        self.last = Some(Instant::now());
        let read = || Some(kernel.selector()?.counts());
        let (counts, stamp) = at_one_time(read, realtime_ns)?;
        let Causes {
            beacons,
            updates,
            forged,
            filtered,
            ..
        } = counts.causes;
        let report = self.report(kernel, revision, (counts, stamp))?;
        let sums = Sums {
            beacons,
            updates,
            forged,
            seen: report.seen.iter().sum(),
            captured: report.captured.iter().sum::<u64>().saturating_sub(filtered),
            filtered,
            ring: report.summary.ring,
        };
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
            shared: counts.shared,
        })
    }
}

/// Reads until a reading takes no longer than `AT_ONCE`. Returns it with the time of its end;
/// `None` if each took longer, or there is nothing to read.
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

/// Packets of all buckets, since the counters were 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sums {
    pub(super) seen: u64,
    pub(super) captured: u64,
    /// Packets that were the node's, and that the cluster's filter dropped.
    pub(super) filtered: u64,
    pub(super) ring: u64,
    pub(super) beacons: u64,
    pub(super) updates: u64,
    pub(super) forged: u64,
}

#[cfg(test)]
mod tests;
