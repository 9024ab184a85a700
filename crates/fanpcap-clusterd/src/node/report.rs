//! Reports the node's counts to the analyzers, once a second.
//!
//! A report goes in datagrams, of which each is whole by itself. A lost one costs a second: counts
//! only grow, and the next report has them all.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fanpcap_cluster::record::{Head, Kind, encode_counts};
use fanpcap_cluster::witness::{Beacon, Report, Summary};
use fanpcap_cluster::{Announcement, NodeId, Revision};
use fanpcap_linux::wait::clock::{self, realtime_ns};
use fanpcap_select::native::Causes;

use super::kernel::Kernel;
use crate::keyring::Keyring;
use crate::selector::Counts;
use crate::welcome::{ANSWER, ANSWERS, Access};

/// How often the analyzers are told.
const EVERY: Duration = Duration::from_secs(1);

/// A reading of all counts that takes longer, in nanoseconds, is of no certain time: the process
/// was stopped, or had no CPU. Analyzers compare the counts of nodes to within 100 ms.
const AT_ONCE: u64 = 20_000_000;

/// How often the counts are read for one report.
const READINGS: usize = 5;

/// Buckets of a datagram: it stays below 1400 bytes.
const BUCKETS: usize = 76;

/// Analyzers of before that are remembered.
const FORMER: usize = 16;

/// Tells the analyzers what the node counts.
#[derive(Debug)]
pub(super) struct Reporter {
    /// One for each family of addresses: analyzers may have either.
    sockets: Vec<UdpSocket>,
    cluster: u64,
    announcement: Announcement,
    session: u64,
    keyring: Arc<Keyring>,
    analyzers: Vec<(SocketAddr, Access)>,
    /// Analyzers of before. One that comes back has the numbers of this session's messages.
    former: Vec<(SocketAddr, Access)>,
    last: Option<Instant>,
}

impl Reporter {
    /// A reporter that sends from this address of the node.
    pub(super) fn new(
        cluster: u64,
        announcement: Announcement,
        from: IpAddr,
        keyring: Arc<Keyring>,
    ) -> Self {
        Self {
            sockets: sockets(from),
            keyring,
            cluster,
            announcement,
            session: realtime_ns(),
            analyzers: Vec::new(),
            former: Vec::new(),
            last: None,
        }
    }

    /// The node that reports.
    pub(super) const fn node(&self) -> NodeId {
        self.announcement.node
    }

    /// Tells these analyzers from now on.
    pub(super) fn follow(&mut self, analyzers: &[SocketAddr]) {
        let mut known = std::mem::take(&mut self.analyzers);
        known.append(&mut self.former);
        let access = |analyzer: &SocketAddr| known.iter().find(|(known, _)| known == analyzer);
        let access = |analyzer: &SocketAddr| access(analyzer).map_or(Access::default(), |it| it.1);
        let all = analyzers.iter();
        self.analyzers = all.map(|analyzer| (*analyzer, access(analyzer))).collect();
        known.retain(|(known, _)| !analyzers.contains(known));
        known.truncate(FORMER);
        self.former = known;
    }

    /// Takes the analyzers' answers, and asks for the tokens that are lacking. A new token has the
    /// counts sent at once.
    fn heed(&mut self) {
        let head = self.head();
        let (sockets, analyzers) = (&self.sockets, &mut self.analyzers);
        let is_new = self.keyring.with(|keys| {
            let keys = keys?;
            let mut is_new = false;
            let mut answer = [0; ANSWER];
            for socket in sockets {
                for _ in 0..ANSWERS {
                    let Ok((length, from)) = socket.recv_from(&mut answer) else {
                        break;
                    };
                    let Some((_, access)) = analyzers.iter_mut().find(|(it, _)| *it == from) else {
                        continue;
                    };
                    is_new |= access.hear(keys, &head, &answer[..length]);
                }
            }
            for (analyzer, access) in analyzers {
                if let Some(hello) = access.ask(keys, &head) {
                    send_to(sockets, &hello, *analyzer);
                }
            }
            Some(is_new)
        });
        if is_new == Some(true) {
            self.last = None;
        }
    }

    /// Tells what is counted, if it is due. Returns the sums, if they were read.
    pub(super) fn tick(&mut self, kernel: &Kernel, revision: Revision) -> Option<Sums> {
        self.heed();
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
            ..
        } = counts.causes;
        let report = self.report(kernel, revision, (counts, stamp))?;
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

    fn send(&mut self, report: &Report) {
        let head = self.head();
        let (sockets, analyzers) = (&self.sockets, &mut self.analyzers);
        self.keyring.with(|keys| {
            for chunk in report.chunks(BUCKETS) {
                let mut message = encode_counts(&head, &chunk);
                let length = message.len();
                for (analyzer, access) in &mut *analyzers {
                    message.truncate(length);
                    match keys {
                        // The token comes within milliseconds, and counts are sent then.
                        Some(_) if !access.is_valid() => continue,
                        Some(keys) => access.seal(keys, &mut message),
                        None => {}
                    }
                    send_to(sockets, &message, *analyzer);
                }
            }
        });
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

/// A socket on the node's address, and one of the other family on any.
fn sockets(from: IpAddr) -> Vec<UdpSocket> {
    let other: IpAddr = match from {
        IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED.into(),
    };
    let both = [from, other].into_iter();
    both.filter_map(|from| UdpSocket::bind((from, 0)).ok())
        .filter(|socket| socket.set_nonblocking(true).is_ok())
        .collect()
}

/// Sends by the socket of the analyzer's address family.
fn send_to(sockets: &[UdpSocket], message: &[u8], analyzer: SocketAddr) {
    let is_same = |socket: &&UdpSocket| {
        let from = socket.local_addr();
        from.is_ok_and(|from| from.is_ipv4() == analyzer.is_ipv4())
    };
    if let Some(socket) = sockets.iter().find(is_same) {
        // A lost report is replaced by the next one, a second later.
        let _ = socket.send_to(message, analyzer);
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

#[cfg(test)]
mod tests;
