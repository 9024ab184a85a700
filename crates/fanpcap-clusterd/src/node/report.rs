//! What the node counts, told to the analyzers once a second.
//!
//! A report goes in datagrams, of which each is whole by itself. A lost one costs a second: counts
//! only grow, and the next report has them all.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fanpcap_cluster::record::{Head, Kind, encode_counts};
use fanpcap_cluster::witness::{Beacon, Report, Summary};
use fanpcap_cluster::{Announcement, Revision};
use fanpcap_linux::wait::clock;
use fanpcap_select::native::Causes;

use super::kernel::Kernel;
use crate::selector::Counts;

/// How often the analyzers are told.
const EVERY: Duration = Duration::from_secs(1);

/// Buckets of a datagram: it stays below 1400 bytes.
const BUCKETS: usize = 80;

/// Tells the analyzers what the node counts.
#[derive(Debug)]
pub(super) struct Reporter {
    socket: Option<UdpSocket>,
    cluster: u64,
    announcement: Announcement,
    session: u64,
    analyzers: Vec<SocketAddr>,
    last: Option<Instant>,
}

impl Reporter {
    /// A reporter that sends from this address of the node.
    pub(super) fn new(cluster: u64, announcement: Announcement, from: IpAddr) -> Self {
        Self {
            socket: UdpSocket::bind((from, 0)).ok(),
            cluster,
            announcement,
            session: now_ns(),
            analyzers: Vec::new(),
            last: None,
        }
    }

    /// Tells these analyzers from now on.
    pub(super) fn follow(&mut self, analyzers: &[SocketAddr]) {
        self.analyzers = analyzers.to_vec();
    }

    /// Tells what is counted, if it is due. Returns the sums, if they were read.
    pub(super) fn tick(&mut self, kernel: &Kernel, revision: Revision) -> Option<Sums> {
        if self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return None;
        }
        self.last = Some(Instant::now());
        let counts = kernel.selector()?.counts();
        let Causes {
            beacons,
            updates,
            forged,
            ..
        } = counts.causes;
        let report = self.report(kernel, revision, counts)?;
        self.send(&report);
        Some(Sums {
            beacons,
            updates,
            forged,
            seen: report.seen.iter().sum(),
            captured: report.captured.iter().sum(),
            ring: report.summary.ring,
        })
    }

    fn report(&self, kernel: &Kernel, revision: Revision, counts: Counts) -> Option<Report> {
        let selector = kernel.selector()?;
        let beacon = selector.last_beacon().map(|beacon| Beacon {
            sequence: beacon.sequence,
            seen: beacon.came_ns.wrapping_add(clock::realtime_offset_ns()),
        });
        let summary = Summary {
            node: self.announcement.node,
            boot: self.announcement.boot,
            since: kernel.since(),
            stamp: now_ns(),
            revision,
            ring: counts.causes.lost,
            marked: counts.causes.shared,
            beacon: beacon.unwrap_or_default(),
        };
        Some(Report {
            summary,
            seen: counts.seen,
            captured: counts.captured,
        })
    }

    /// What the node's messages begin with.
    pub(super) fn head(&self) -> Head {
        Head {
            kind: Kind::Counts,
            length: 0,
            cluster: self.cluster,
            node: self.announcement.node,
            boot: self.announcement.boot,
            session: self.session,
        }
    }

    fn send(&self, report: &Report) {
        let Some(socket) = self.socket.as_ref().filter(|_| !self.analyzers.is_empty()) else {
            return;
        };
        let head = self.head();
        for chunk in report.chunks(BUCKETS) {
            let message = encode_counts(&head, &chunk);
            for analyzer in &self.analyzers {
                // What is lost now is told again in a second.
                let _ = socket.send_to(&message, analyzer);
            }
        }
    }
}

/// Packets of all buckets, since the counters were 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sums {
    pub(super) seen: u64,
    pub(super) captured: u64,
    pub(super) ring: u64,
    pub(super) beacons: u64,
    pub(super) updates: u64,
    pub(super) forged: u64,
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
