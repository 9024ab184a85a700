//! Counters of a thread: its own, and the kernel's for its handle.

use std::ops::AddAssign;

use fanpcap_pcap::Stats;

/// Counters of a thread since it started, or the sum over several threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets passed to the callback.
    pub captured: u64,
    /// Bytes of the captured packets on the wire.
    pub bytes: u64,
    /// CPU time of the thread in nanoseconds.
    pub cpu_ns: u64,
    /// Packets in the savefile; `None` without a savefile to write.
    pub written: Option<u64>,
    /// The kernel's counters; `None` when a savefile is read.
    pub kernel: Option<Kernel>,
    /// The greatest number of packets that libpcap may reject although the kernel let them through.
    /// These packets arrived before the filter was set.
    pub late_max: u64,
    /// Whether the thread has read its ring to the end.
    pub read_to_end: bool,
}

/// Packets that the kernel received and that were neither captured nor dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// Packets that the filter rejected in user space, although the kernel had let them through.
    pub late: u64,
    /// Packets that are still in the ring.
    pub unread: u64,
    /// Packets that no counter explains. If more packets left the ring than the kernel counted, the
    /// excess is included.
    pub off: u64,
}

/// The kernel's counters of a handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Packets that passed the filter, including dropped packets.
    pub received: u64,
    /// Packets of `received` that were dropped because the ring was full.
    pub dropped: u64,
    /// Packets that the device dropped; every handle reports the same number.
    pub interface_dropped: u64,
}

impl Kernel {
    /// Adds the difference between the readings `last` and `now`. Differences are needed because
    /// libpcap's counters wrap at 32 bits.
    pub(crate) fn advance(&mut self, last: Stats, now: Stats) {
        self.received += u64::from(now.received.wrapping_sub(last.received));
        self.dropped += u64::from(now.dropped.wrapping_sub(last.dropped));
        let interface_dropped = now.interface_dropped.wrapping_sub(last.interface_dropped);
        self.interface_dropped += u64::from(interface_dropped);
    }
}

impl Counts {
    /// Packets that the kernel received for the ring, but that were neither captured nor dropped.
    /// Negative if more packets left the ring than the kernel counted; `None` for a savefile.
    pub fn left(&self) -> Option<i64> {
        let kernel = self.kernel?;
        let signed = |count| i64::try_from(count).ok();
        Some(signed(kernel.received)? - signed(kernel.dropped)? - signed(self.captured)?)
    }

    /// Splits [`Counts::left`] of one thread by cause; `None` for a savefile.
    pub fn rest(&self) -> Option<Rest> {
        let left = self.left()?;
        let mut rest = Rest::default();
        match u64::try_from(left) {
            Ok(left) if !self.read_to_end => rest.unread = left,
            Ok(left) if left <= self.late_max => rest.late = left,
            Ok(_) | Err(_) => rest.off = left.unsigned_abs(),
        }
        Some(rest)
    }
}

impl AddAssign for Rest {
    fn add_assign(&mut self, other: Self) {
        self.late += other.late;
        self.unread += other.unread;
        self.off += other.off;
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.captured += other.captured;
        self.bytes += other.bytes;
        self.cpu_ns += other.cpu_ns;
        if let Some(written) = other.written {
            *self.written.get_or_insert_default() += written;
        }
        let Some(kernel) = other.kernel else { return };
        let sum = self.kernel.get_or_insert_default();
        sum.received += kernel.received;
        sum.dropped += kernel.dropped;
        // Every handle reports the same counter of the device.
        sum.interface_dropped = sum.interface_dropped.max(kernel.interface_dropped);
    }
}

/// Sum of the counters of several threads.
pub fn sum(all: impl IntoIterator<Item = Counts>) -> Counts {
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
    fn what_is_left_is_late_unread_or_off() {
        let rest = |left: u64, late_max, read_to_end| {
            let counts = Counts {
                late_max,
                read_to_end,
                ..counts(7, 10 + left, 3, 0)
            };
            counts.rest().unwrap()
        };
        let is = |late, unread, off| Rest { late, unread, off };
        assert_eq!(rest(0, 0, true), is(0, 0, 0));
        assert_eq!(rest(5, 5, true), is(5, 0, 0));
        assert_eq!(rest(6, 5, true), is(0, 0, 6));
        assert_eq!(rest(6, 5, false), is(0, 6, 0));
        // More packets left the ring than came in. That is an error even if the ring was not read
        // to the end.
        assert_eq!(counts(11, 10, 0, 0).rest(), Some(is(0, 0, 1)));
        assert_eq!(Counts::default().rest(), None);
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
