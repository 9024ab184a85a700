//! What a thread has counted, and what the kernel has counted for it.

use std::ops::AddAssign;

use fanpcap_linux::pcap::Stats;

/// The counters of a thread, or the sum of several, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Packets handed to the program.
    pub(super) captured: u64,
    /// Their bytes on the wire.
    pub(super) bytes: u64,
    /// CPU time that the thread has had, nanoseconds.
    pub(super) cpu_ns: u64,
    /// The kernel's own; none for a savefile.
    pub(super) kernel: Option<Kernel>,
}

/// What the kernel counts for a handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    /// Packets that passed the filter, dropped ones included.
    pub(super) received: u64,
    /// Of these, lost because the ring was full.
    pub(super) dropped: u64,
    /// What the device dropped, the same for all handles.
    pub(super) interface_dropped: u64,
}

impl Kernel {
    /// The counters after those of `last`, given what libpcap says now: its counters wrap at 32 bits.
    pub(super) fn advance(&mut self, last: Stats, now: Stats) {
        self.received += u64::from(now.received.wrapping_sub(last.received));
        self.dropped += u64::from(now.dropped.wrapping_sub(last.dropped));
        let interface_dropped = now.interface_dropped.wrapping_sub(last.interface_dropped);
        self.interface_dropped += u64::from(interface_dropped);
    }
}

impl Counts {
    /// Packets that the kernel had for the ring and that were neither captured nor dropped; negative when
    /// more came out of it than the kernel says. None for a savefile.
    pub(super) fn left(&self) -> Option<i64> {
        let kernel = self.kernel?;
        let signed = |count| i64::try_from(count).ok();
        Some(signed(kernel.received)? - signed(kernel.dropped)? - signed(self.captured)?)
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.captured += other.captured;
        self.bytes += other.bytes;
        self.cpu_ns += other.cpu_ns;
        let Some(kernel) = other.kernel else { return };
        let sum = self.kernel.get_or_insert_default();
        sum.received += kernel.received;
        sum.dropped += kernel.dropped;
        // The device's counter, seen by each handle.
        sum.interface_dropped = sum.interface_dropped.max(kernel.interface_dropped);
    }
}

/// The sum of several threads' counters.
pub(super) fn sum(all: impl IntoIterator<Item = Counts>) -> Counts {
    let mut sum = Counts::default();
    all.into_iter().for_each(|counts| sum += counts);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(captured: u64, received: u64, dropped: u64, interface_dropped: u64) -> Counts {
        Counts {
            captured,
            kernel: Some(Kernel {
                received,
                dropped,
                interface_dropped,
            }),
            ..Counts::default()
        }
    }

    #[test]
    fn the_sum_has_the_drops_of_all_threads_and_those_of_the_device_once() {
        let sum = sum([counts(7, 10, 3, 5), counts(1, 6, 4, 5)]);
        assert_eq!(sum, counts(8, 16, 7, 5));
        assert_eq!(sum.left(), Some(1));
        assert_eq!(counts(11, 10, 0, 0).left(), Some(-1));
        assert_eq!(Counts::default().left(), None);
    }

    #[test]
    fn counters_that_wrap_go_on() {
        let mut kernel = Kernel::default();
        let stats = |received| Stats {
            received,
            ..Stats::default()
        };
        kernel.advance(stats(0), stats(u32::MAX));
        kernel.advance(stats(u32::MAX), stats(4));
        assert_eq!(kernel.received, u64::from(u32::MAX) + 5);
    }
}
