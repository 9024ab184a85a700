//! What a reader tells others of its member: how much it has taken from the ring, with each packet; and what the
//! kernel has counted, about ten times a second.
//!
//! The kernel tells a socket's counters to its owner only, so the reader asks for them itself, past the system's
//! library. When a block has been read, the kernel's own stamps tell whether it is time; a clock is asked
//! only where the ring is empty.

use fanpcap_linux::shared::Word;
use fanpcap_linux::signal::Blocked;
use fanpcap_linux::{packet, process};
use fanpcap_ring::Stamp;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The counters that a reader keeps for others to read.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Set to the frames that the reader has taken from the ring since it was made, before each is
    /// delivered.
    pub taken: Word,
    /// Packets received, of which the reader has read: added to.
    pub received: Word,
    /// The same of those dropped.
    pub dropped: Word,
    /// When it did so last, nanoseconds of `CLOCK_MONOTONIC`.
    pub read_ns: Word,
}

/// How old the kernel's counters become while packets come.
const INTERVAL: Duration = Duration::from_millis(100);
const INTERVAL_NS: u64 = 100_000_000;

/// The shortest wait for the next publication: the coarse clock's ticks are some milliseconds.
const SHORTEST: Duration = Duration::from_millis(2);

/// After so many blocks or frames the counters are published whatever the stamps say: a burst has stamps
/// that are close together, however long it takes to read.
pub(crate) const BLOCKS: u32 = 16;
pub(crate) const FRAMES: u32 = 4096;

/// The publisher of one lane.
#[derive(Debug)]
pub(crate) struct Publisher {
    kept: Kept,
    socket: BorrowedFd<'static>,
    /// What was taken when the counters were published last; none for never.
    published: Option<u64>,
    /// When that was, by the clock.
    at_ns: u64,
    /// The first stamp that was seen since.
    base: Option<Stamp>,
    /// The last stamp's [`tick`].
    tick: u64,
    /// Blocks or frames read since, and after how many to publish.
    passed: u32,
    most: u32,
}

impl Publisher {
    /// For a member that joined at `since_ns` of `CLOCK_MONOTONIC`.
    pub(crate) fn new(kept: Kept, socket: BorrowedFd<'static>, since_ns: u64) -> Self {
        Self {
            kept,
            socket,
            published: None,
            at_ns: since_ns,
            base: None,
            tick: 0,
            passed: 0,
            most: BLOCKS,
        }
    }

    /// Begins with what has been `taken` so far of a ring of whose blocks or frames `most` may pass. Returns
    /// where what is taken is shown.
    pub(crate) fn begin(&mut self, taken: u64, most: u32) -> Word {
        self.most = most;
        self.kept.taken.set(taken);
        self.kept.taken.clone()
    }

    /// A block or frame has been read that ended at `stamp`.
    #[inline]
    pub(crate) fn pass(&mut self, stamp: Stamp, taken: u64) {
        self.passed += 1;
        if (tick(stamp) != self.tick || self.passed >= self.most) && self.is_due(stamp) {
            self.publish(taken);
            self.base = Some(stamp);
        }
    }

    #[cold]
    fn is_due(&mut self, stamp: Stamp) -> bool {
        self.tick = tick(stamp);
        let base = *self.base.get_or_insert(stamp);
        // A clock that was set back says nothing of how much time has passed.
        let apart = stamp.since(base).max(base.since(stamp));
        apart >= INTERVAL_NS || self.passed >= self.most
    }

    /// The ring is empty, and its reader about to wait: publishes when it is time. Returns after how long it
    /// will be, if there is something to publish.
    pub(crate) fn handle_empty(&mut self, taken: u64) -> Option<Duration> {
        if self.published == Some(taken) {
            return None;
        }
        let age = Duration::from_nanos(process::coarse_ns().saturating_sub(self.at_ns));
        if age < INTERVAL {
            return Some((INTERVAL - age).max(SHORTEST));
        }
        self.publish(taken);
        self.base = None;
        None
    }

    fn publish(&mut self, taken: u64) {
        {
            // A signal handler that asks for counters, or leaves the read by siglongjmp, must not meet packets
            // that neither the kernel nor the page has.
            let _signals = Blocked::new();
            if let Ok(statistics) = packet::take_statistics(self.socket) {
                self.kept.received.add(statistics.packets.into());
                self.kept.dropped.add(statistics.drops.into());
                self.kept.read_ns.set(process::monotonic_ns());
                self.published = Some(taken);
            }
        }
        self.at_ns = process::monotonic_ns();
        self.passed = 0;
    }
}

/// Which part of time a stamp is in, each of 67 milliseconds: so that a look at a stamp is one comparison.
#[inline]
fn tick(stamp: Stamp) -> u64 {
    u64::from(stamp.seconds) << 6 | u64::from(stamp.nanoseconds >> 26)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::shared;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    fn at(milliseconds: u32) -> Stamp {
        Stamp {
            seconds: 7 + milliseconds / 1000,
            nanoseconds: milliseconds % 1000 * 1_000_000,
        }
    }

    /// A publisher on a socket that has no counters to read.
    fn publisher(at_ns: u64) -> (Publisher, Kept) {
        let socket: &'static UdpSocket =
            Box::leak(Box::new(UdpSocket::bind("127.0.0.1:0").unwrap()));
        let [taken, received, dropped, read_ns] = shared::own(&[u64::MAX, 0, 0, 0]);
        let kept = Kept {
            taken,
            received,
            dropped,
            read_ns,
        };
        (Publisher::new(kept.clone(), socket.as_fd(), at_ns), kept)
    }

    #[test]
    fn stamps_tell_when_it_is_time() {
        let (mut publisher, _) = publisher(0);
        assert!(!publisher.is_due(at(500)), "the first says nothing");
        assert!(!publisher.is_due(at(599)));
        assert!(publisher.is_due(at(600)));
        assert!(publisher.is_due(at(1300)));
        assert!(publisher.is_due(at(100)), "set back");
    }

    #[test]
    fn a_burst_is_published_by_the_way() {
        let (mut publisher, _) = publisher(0);
        assert_eq!(publisher.begin(3, 4).get(), 3);
        for passed in 1..=4 {
            publisher.passed = passed;
            assert_eq!(publisher.is_due(at(500)), passed == 4);
        }
        publisher.pass(at(500), 9);
        assert_eq!(publisher.passed, 0);
    }

    #[test]
    fn who_waits_is_told_for_how_long() {
        let (mut early, _) = publisher(process::monotonic_ns());
        let wait = early.handle_empty(0).unwrap();
        assert!(wait <= INTERVAL && wait >= SHORTEST, "{wait:?}");
        early.published = Some(0);
        assert_eq!(early.handle_empty(0), None);
        assert!(early.handle_empty(1).is_some());
    }

    #[test]
    fn counters_that_can_not_be_read_stay_as_old_as_they_are() {
        let (mut late, kept) = publisher(0);
        assert_eq!(late.handle_empty(5), None);
        assert_eq!((kept.received.get(), kept.read_ns.get()), (0, 0));
        assert!(
            late.handle_empty(5).is_some(),
            "it is tried again, but not at once"
        );
    }
}
