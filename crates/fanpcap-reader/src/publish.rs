//! Publishes the counters of a reader's member. The number of frames taken from the ring is
//! published with each packet, and the kernel's counters about ten times a second.
//!
//! The kernel shows a socket's counters only to the socket's owner, and clears the counters at each
//! read. So the reader reads them itself, without the system's library. The publisher reads the
//! clock once in many frames, and when the ring is empty.

use crate::group_tasks::PublishedPosition;
use crate::port::Port;
use fanpcap_linux::file::shared::{self, Word};
use fanpcap_linux::process::signal::Blocked;
use fanpcap_linux::wait::clock;
use std::sync::Arc;
use std::time::Duration;

/// The counters that a reader publishes.
#[derive(Clone)]
pub struct PublishedCounters {
    /// The reader's position in the ring.
    pub position: PublishedPosition,
    /// Packets received, by the kernel's counters. The reader adds to this sum each time it reads
    /// the kernel's counters.
    pub received: Word,
    /// Packets dropped, by the kernel's counters.
    pub dropped: Word,
    /// The reader adds 1 to this word before it reads the kernel's counters, and subtracts 1 when
    /// it has added them to `received` and `dropped`.
    pub reading: Word,
    /// The time at which the kernel's counters were last read, in nanoseconds of `CLOCK_MONOTONIC`.
    pub read_ns: Word,
    /// The value of `taken` at `read_ns`.
    pub read_taken: Word,
    /// The value of `taken` when the reader last began to wait with all counters published.
    pub idle_taken: Word,
    /// The time at which the application last looked for packets, in nanoseconds of
    /// `CLOCK_MONOTONIC`; `u64::MAX` while the application waits for packets.
    pub looked_ns: Word,
    /// Packets that the reader's filter has rejected and that are among those received; `None` if
    /// nobody asks for this number.
    pub rejected: Option<Word>,
    /// Further counters, published together with the kernel's counters.
    pub more: Option<Arc<dyn Publish>>,
}

impl PublishedCounters {
    /// Counters in this process's own memory.
    pub fn own() -> Self {
        let [
            taken,
            mark,
            received,
            dropped,
            reading,
            read_ns,
            read_taken,
            idle_taken,
            looked_ns,
        ] = shared::own(&[0; 9]);
        Self {
            position: PublishedPosition { taken, mark },
            received,
            dropped,
            reading,
            read_ns,
            read_taken,
            idle_taken,
            looked_ns,
            rejected: None,
            more: None,
        }
    }
}

/// More counters that are published together with the kernel's counters.
pub trait Publish: Send + Sync {
    /// Publishes the counters. Signals are blocked during the call.
    fn publish(&self);

    /// Whether the counters change even while no packet comes into the ring. If so, a waiting
    /// reader wakes to publish them.
    fn goes_on(&self) -> bool;
}

/// Value of `looked_ns`: the application waits for packets.
pub(crate) const WAITS: u64 = u64::MAX;

/// The longest time between two reads of the kernel's counters while packets come.
const INTERVAL: Duration = Duration::from_millis(100);

/// The shortest wait for the next publication. A shorter wait could end before the coarse clock's
/// next tick, which takes some milliseconds.
const SHORTEST: Duration = Duration::from_millis(2);

/// The most frames between two readings of the clock.
const STRIDE: u64 = 64;

/// If the frames between two readings of the clock take longer than this, the application is slow.
/// For a slow application, the publisher reads the clock with each frame.
const SLOW: Duration = Duration::from_millis(50);

pub(crate) struct Publisher {
    pub(crate) kept: PublishedCounters,
    port: Arc<dyn Port>,
    /// Frames taken when the kernel's counters were last read; `None` before the first read.
    asked: Option<u64>,
    asked_ns: u64,
    /// Time of the last reading of the clock. `stride` is the number of frames from this reading to
    /// the next.
    looked_ns: u64,
    stride: u64,
    /// Whether the publisher has published. The reader resets the flag.
    pub(crate) has_told: bool,
}

impl Publisher {
    /// A publisher for a member that joined at `since_ns` of `CLOCK_MONOTONIC`.
    pub(crate) fn new(kept: PublishedCounters, port: Arc<dyn Port>, since_ns: u64) -> Self {
        Self {
            kept,
            port,
            asked: None,
            asked_ns: since_ns,
            looked_ns: since_ns,
            stride: 1,
            has_told: false,
        }
    }

    /// Reads the clock, and publishes the counters if the time has come. Returns the number of
    /// taken frames at which the caller calls this function again.
    #[cold]
    #[inline(never)]
    pub(crate) fn look(&mut self, taken: u64) -> u64 {
        let now = clock::coarse_ns();
        self.stride = stride(self.stride, since(self.looked_ns, now));
        self.looked_ns = now;
        self.kept.looked_ns.set(now);
        if since(self.asked_ns, now) >= INTERVAL {
            self.publish(taken);
        }
        taken + self.stride
    }

    /// Handles an empty ring: publishes the counters if the time has come. Returns the time until
    /// the next publication; `None` if nothing is left to publish.
    pub(crate) fn handle_empty(&mut self, taken: u64) -> Option<Duration> {
        let has_published = self.has_published(taken);
        if has_published && !self.goes_on() {
            return None;
        }
        // The coarse clock lags. A reader that waits all the time would get too short a wait from
        // it, and wake too early each time.
        let now = if has_published {
            clock::monotonic_ns()
        } else {
            clock::coarse_ns()
        };
        let age = since(self.asked_ns, now);
        if age < INTERVAL {
            return Some((INTERVAL - age).max(SHORTEST));
        }
        self.publish(taken);
        self.goes_on().then_some(INTERVAL)
    }

    /// Whether all taken frames are published.
    fn has_published(&self, taken: u64) -> bool {
        self.asked == Some(taken)
    }

    fn goes_on(&self) -> bool {
        self.kept.more.as_ref().is_some_and(|more| more.goes_on())
    }

    /// Notes that the reader is about to wait at the empty ring, if everything is published.
    pub(crate) fn handle_idle(&self, taken: u64) {
        if self.has_published(taken) {
            self.kept.idle_taken.set(taken);
        }
    }

    /// Notes that the application begins to wait for packets (`waits`), or has waited. If the
    /// application leaves a wait by siglongjmp(3), `looked_ns` keeps the value [`WAITS`] until the
    /// next read.
    pub(crate) fn note_wait(&self, waits: bool) {
        let looked_ns = if waits { WAITS } else { clock::coarse_ns() };
        self.kept.looked_ns.set(looked_ns);
    }

    /// Publishes the counters. If all taken frames are published, the kernel's counters can't have
    /// changed, and only `more` is published.
    fn publish(&mut self, taken: u64) {
        let has_published = self.has_published(taken);
        {
            // Between the read of the kernel's counters and the update of the member page, the
            // packets are counted nowhere. During that time no signal handler may run, because it
            // could ask for counters or leave by siglongjmp(3).
            let _signals = Blocked::new();
            if !has_published {
                self.kept.reading.during(|| {
                    let Ok(statistics) = self.port.take_statistics() else {
                        return;
                    };
                    self.kept.received.add(statistics.received);
                    self.kept.dropped.add(statistics.dropped);
                    self.kept.read_taken.set(taken);
                    self.kept.read_ns.set(clock::monotonic_ns());
                });
            }
            if let Some(more) = &self.kept.more {
                more.publish();
            }
        }
        // Set these fields even if the kernel's counters can't be read. The failure may last, and
        // an idle reader must not wake up again and again only to retry.
        self.asked = Some(taken);
        self.asked_ns = clock::monotonic_ns();
        self.has_told |= !has_published;
    }
}

fn since(then_ns: u64, now_ns: u64) -> Duration {
    Duration::from_nanos(now_ns.saturating_sub(then_ns))
}

/// The number of frames until the next reading of the clock, if the `last` frames before took the
/// time `took`.
fn stride(last: u64, took: Duration) -> u64 {
    if took > SLOW {
        1
    } else {
        (last * 2).min(STRIDE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quiet::Quiet;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Debug)]
    struct Times {
        told: AtomicU32,
        goes_on: bool,
    }

    impl Publish for Times {
        fn publish(&self) {
            self.told.fetch_add(1, Ordering::Relaxed);
        }

        fn goes_on(&self) -> bool {
            self.goes_on
        }
    }

    fn telling(publisher: &mut Publisher, goes_on: bool) -> Arc<Times> {
        let told = AtomicU32::new(0);
        let times = Arc::new(Times { told, goes_on });
        publisher.kept.more = Some(Arc::clone(&times) as Arc<dyn Publish>);
        times
    }

    fn publisher(at_ns: u64) -> (Publisher, PublishedCounters) {
        let port = Arc::new(Quiet::new(false));
        let kept = PublishedCounters::own();
        kept.position.taken.set(u64::MAX);
        (Publisher::new(kept.clone(), port, at_ns), kept)
    }

    #[test]
    fn the_clock_is_looked_at_rarely_unless_the_program_is_slow() {
        let (mut publisher, _) = publisher(clock::monotonic_ns());
        let mut next = 1;
        let looks = std::iter::from_fn(|| {
            let taken = next;
            next = publisher.look(taken);
            Some(next - taken)
        });
        let strides: Vec<u64> = looks.take(8).collect();
        assert_eq!(strides, [2, 4, 8, 16, 32, 64, 64, 64]);
        let slow = SLOW + Duration::from_millis(1);
        assert_eq!(stride(STRIDE, slow), 1);
        assert_eq!(stride(1, slow), 1);
    }

    #[test]
    fn a_look_publishes_when_it_is_time() {
        let (mut early, _) = publisher(clock::monotonic_ns());
        early.look(1);
        assert_eq!(early.asked, None);
        let (mut late, _) = publisher(0);
        late.look(7);
        assert_eq!(late.asked, Some(7));
        late.look(8);
        assert_eq!(late.asked, Some(7), "just now");
    }

    #[test]
    fn looks_and_waits_are_shown() {
        let (mut publisher, kept) = publisher(clock::monotonic_ns());
        assert_eq!(kept.looked_ns.get(), 0, "never");
        publisher.note_wait(true);
        assert_eq!(kept.looked_ns.get(), WAITS);
        let before = clock::coarse_ns();
        publisher.note_wait(false);
        let looked = kept.looked_ns.get();
        assert!((before..=clock::monotonic_ns()).contains(&looked));
        kept.looked_ns.set(0);
        publisher.look(1);
        assert!(kept.looked_ns.get() >= before);
    }

    #[test]
    fn who_waits_is_told_for_how_long() {
        let (mut early, _) = publisher(clock::monotonic_ns());
        let wait = early.handle_empty(0).unwrap();
        assert!(wait <= INTERVAL && wait >= SHORTEST, "{wait:?}");
        early.asked = Some(0);
        assert_eq!(early.handle_empty(0), None);
        assert!(early.handle_empty(1).is_some());
    }

    #[test]
    fn what_changes_by_itself_is_told_ten_times_a_second_by_who_waits() {
        let (mut publisher, _) = publisher(0);
        let times = telling(&mut publisher, true);
        let told = || times.told.load(Ordering::Relaxed);
        assert_eq!(publisher.handle_empty(5), Some(INTERVAL), "with the rest");
        assert!(publisher.has_published(5) && told() == 1);
        let wait = publisher.handle_empty(5).unwrap();
        assert!(wait <= INTERVAL && told() == 1, "just now");
        publisher.asked_ns = 0;
        assert_eq!(publisher.handle_empty(5), Some(INTERVAL));
        assert!(publisher.has_published(5) && told() == 2);
    }

    #[test]
    fn nobody_wakes_for_what_does_not_change() {
        let (mut publisher, _) = publisher(0);
        let times = telling(&mut publisher, false);
        assert_eq!(publisher.handle_empty(5), None);
        publisher.asked_ns = 0;
        assert_eq!(publisher.handle_empty(5), None);
        assert_eq!(times.told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn counters_that_can_not_be_read_stay_as_old_as_they_are() {
        let (mut late, kept) = publisher(0);
        assert_eq!(late.handle_empty(5), None);
        assert_eq!((kept.received.get(), kept.read_ns.get()), (0, 0));
        assert_eq!(late.handle_empty(5), None, "no wake-up to try again");
        assert!(late.handle_empty(6).is_some(), "packets have come");
    }
}
