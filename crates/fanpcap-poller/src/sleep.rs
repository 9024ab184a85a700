//! The sleep of a thread whose source has no packets.

use crate::naps::Naps;
use crate::source::Source;
use fanpcap_linux::wait::{self, POLLIN, Wake};
use std::time::Duration;

/// The longest sleep.
pub(crate) const LONGEST: Duration = Duration::from_millis(100);

/// After so many sleeps in a row that a packet should have ended, the thread no longer relies on
/// the source's descriptor. Fewer may be chance: packets came when the time was just over, and on a
/// busy machine the thread looked for them late.
const MISSES: u32 = 4;

/// A sleep is this much shorter for each miss, so that a sender with the period of a sleep does not
/// repeat the miss.
const SHORTER: Duration = Duration::from_millis(13);

/// How a thread sleeps until its source has packets.
#[derive(Default)]
pub(crate) struct Sleep {
    naps: Naps,
    /// Whether the source is prepared for a wait.
    is_prepared: bool,
    /// Whether preparing the source arms its descriptor. Some drivers of DPDK report success, but
    /// no interrupt comes.
    is_armed: bool,
    /// Whether the last wait ended because of its time alone.
    was_in_vain: bool,
    /// Waits in vain in a row that were followed by packets.
    misses: u32,
}

impl Sleep {
    /// Sleeps until the source's descriptor is readable, or `wake` is signalled; for a short time
    /// if the source has no descriptor. If the thread must look for packets once more before,
    /// returns at once. Returns whether the source has an error.
    pub(crate) fn once(&mut self, source: &mut dyn Source, wake: &Wake) -> bool {
        if source.waits_on().is_none() || self.misses >= MISSES {
            // After a signal handler, the loop comes back here.
            let _ = wait::wait(None, Some(wake), Some(self.naps.next()));
            wake.clear();
            return false;
        }
        if !self.is_prepared {
            self.is_prepared = true;
            self.was_in_vain = false;
            self.is_armed = source.begin_wait();
            if self.is_armed {
                return false;
            }
        }
        let longest = LONGEST.saturating_sub(SHORTER * self.misses);
        let woken = wait::wait(source.waits_on(), Some(wake), Some(longest));
        wake.clear();
        self.finish(source);
        let Ok(woken) = woken else {
            return false;
        };
        self.was_in_vain = self.is_armed && woken.socket == 0 && !woken.signalled;
        if woken.socket & POLLIN != 0 {
            self.misses = 0;
        }
        woken.socket & !POLLIN != 0
    }

    /// Packets have come.
    pub(crate) fn end(&mut self, source: &mut dyn Source) {
        self.naps = Naps::default();
        if std::mem::take(&mut self.was_in_vain) {
            self.misses += 1;
        }
        self.finish(source);
    }

    fn finish(&mut self, source: &mut dyn Source) {
        if std::mem::take(&mut self.is_prepared) {
            source.end_wait();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::burst::Burst;
    use crate::source::{SourceCounts, SourceError};
    use std::io::{self, Write};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;

    /// A source whose descriptor is a socket.
    struct Fake {
        reader: UnixStream,
        is_armed: bool,
        begun: u32,
    }

    impl Source for Fake {
        fn burst<'s>(&'s mut self, _: &mut Burst<'s>) -> Result<(), SourceError> {
            Ok(())
        }

        fn release(&mut self) {}

        fn check(&mut self) -> Result<(), SourceError> {
            Ok(())
        }

        fn waits_on(&self) -> Option<BorrowedFd<'_>> {
            Some(self.reader.as_fd())
        }

        fn begin_wait(&mut self) -> bool {
            self.begun += 1;
            self.is_armed
        }

        fn transmit(&mut self, _: &[u8]) -> io::Result<bool> {
            Ok(false)
        }

        fn queue(&self) -> u16 {
            0
        }

        fn counts(&mut self) -> SourceCounts {
            SourceCounts::default()
        }
    }

    struct Scene {
        sleep: Sleep,
        source: Fake,
        writer: UnixStream,
        wake: Wake,
    }

    impl Scene {
        fn new(is_armed: bool) -> Self {
            let (reader, writer) = UnixStream::pair().unwrap();
            Self {
                sleep: Sleep::default(),
                source: Fake {
                    reader,
                    is_armed,
                    begun: 0,
                },
                writer,
                wake: Wake::new().unwrap(),
            }
        }

        /// A whole wait, after which packets come. Returns whether the source was prepared for it.
        fn wait(&mut self) -> bool {
            let before = self.source.begun;
            self.sleep.once(&mut self.source, &self.wake);
            if self.source.is_armed {
                self.sleep.once(&mut self.source, &self.wake);
            }
            self.sleep.end(&mut self.source);
            self.source.begun > before
        }
    }

    #[test]
    fn a_descriptor_that_misses_packets_is_not_relied_on() {
        let mut scene = Scene::new(true);
        let waits = [(); 6].map(|()| scene.wait());
        assert_eq!(waits, [true, true, true, true, false, false]);
    }

    #[test]
    fn a_descriptor_that_wakes_the_thread_is_relied_on_again() {
        let mut scene = Scene::new(true);
        for _ in 1..MISSES {
            assert!(scene.wait());
        }
        scene.writer.write_all(b"x").unwrap();
        assert!(scene.wait());
        assert_eq!(scene.sleep.misses, 0);
        (scene.source.reader, scene.writer) = UnixStream::pair().unwrap();
        scene.wake.signal();
        assert!(scene.wait(), "the wait was ended by the caller");
        assert_eq!(scene.sleep.misses, 0);
    }

    #[test]
    fn a_wait_without_packets_is_no_miss() {
        let mut scene = Scene::new(true);
        for _ in 0..3 {
            scene.sleep.once(&mut scene.source, &scene.wake);
            scene.sleep.once(&mut scene.source, &scene.wake);
        }
        assert_eq!(scene.source.begun, 3);
        // The thread has prepared the next wait and looks once more.
        scene.sleep.once(&mut scene.source, &scene.wake);
        scene.sleep.end(&mut scene.source);
        assert_eq!(scene.sleep.misses, 0);
    }

    #[test]
    fn a_descriptor_that_needs_no_arming_is_relied_on() {
        let mut scene = Scene::new(false);
        assert!((0..=MISSES).all(|_| scene.wait()));
    }
}
