//! Converts stamps of the kernel's monotonic clock to the time of day.

use crate::frame::Stamp;
use crate::position::low_half;

/// Returns the time of day less `CLOCK_MONOTONIC`, in nanoseconds.
pub type OffsetClock = fn() -> u64;

/// The offset is read again when a stamp is at least this much newer than the stamp of the last
/// read.
const INTERVAL_NS: u64 = 100_000_000;

/// The precision of a read of the offset. A smaller change of the offset is ignored.
const EXACT_NS: u64 = 1_000;

const SECOND_NS: u64 = 1_000_000_000;

/// A reading of the offset. Two pools convert the same stamp to the same time only by one reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OffsetReading {
    /// The stamp for which the offset was read; 0 if the offset was not read yet.
    read_at: u64,
    offset: u64,
}

impl OffsetReading {
    pub(crate) fn no_later_than(self, stamp: u64) -> Self {
        Self {
            read_at: self.read_at.min(stamp),
            ..self
        }
    }
}

/// Converts stamps to the time of day. Divides only when a stamp is in another second than the
/// stamp before it, because a division for each packet would be slow.
#[derive(Debug)]
pub(crate) struct Wall {
    clock: OffsetClock,
    offset: u64,
    /// The stamp for which the offset was read last; 0 if the offset was not read yet.
    read_at: u64,
    /// The stamp at which the second `seconds` begins.
    begin: u64,
    seconds: u32,
}

impl Wall {
    pub(crate) fn new(clock: OffsetClock) -> Self {
        Self {
            clock,
            offset: 0,
            read_at: 0,
            begin: 0,
            seconds: 0,
        }
    }

    /// Reads the offset, unless it was read for a stamp less than [`INTERVAL_NS`] before `stamp`.
    pub(crate) fn renew(&mut self, stamp: u64) {
        if self.read_at != 0 && stamp.saturating_sub(self.read_at) < INTERVAL_NS {
            return;
        }
        self.read_at = stamp;
        let offset = (self.clock)();
        let change = offset.wrapping_sub(self.offset);
        if change.min(change.wrapping_neg()) >= EXACT_NS {
            self.offset = offset;
            self.begin_second(stamp);
        }
    }

    pub(crate) fn reading(&self) -> OffsetReading {
        OffsetReading {
            read_at: self.read_at,
            offset: self.offset,
        }
    }

    /// Converts stamps by this reading from now on. Returns whether the offset is another one.
    pub(crate) fn adopt(&mut self, reading: OffsetReading) -> bool {
        let is_other = self.offset != reading.offset;
        *self = Self {
            read_at: reading.read_at,
            offset: reading.offset,
            ..*self
        };
        if is_other {
            self.begin_second(reading.read_at);
        }
        is_other
    }

    #[inline]
    pub(crate) fn time_of(&mut self, stamp: u64) -> Stamp {
        if stamp.wrapping_sub(self.begin) >= SECOND_NS {
            self.begin_second(stamp);
        }
        Stamp {
            seconds: self.seconds,
            nanoseconds: low_half(stamp.wrapping_sub(self.begin)),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_second(&mut self, stamp: u64) {
        let time = stamp.wrapping_add(self.offset);
        self.begin = stamp.wrapping_sub(time % SECOND_NS);
        self.seconds = low_half(time / SECOND_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static OFFSET: Cell<u64> = const { Cell::new(0) };
    }

    fn wall(offset: u64) -> Wall {
        OFFSET.set(offset);
        Wall::new(|| OFFSET.get())
    }

    fn at(seconds: u32, nanoseconds: u32) -> Stamp {
        Stamp {
            seconds,
            nanoseconds,
        }
    }

    #[test]
    fn a_stamp_gets_its_second_and_its_nanoseconds() {
        let mut wall = wall(7 * SECOND_NS + 999_999_990);
        wall.renew(5);
        assert_eq!(wall.time_of(5), at(7, 999_999_995));
        assert_eq!(wall.time_of(10), at(8, 0));
        assert_eq!(wall.time_of(9), at(7, 999_999_999), "another lane's");
        assert_eq!(wall.time_of(3 * SECOND_NS), at(10, 999_999_990));
    }

    #[test]
    fn two_walls_agree_on_the_time_of_a_stamp() {
        let mut first = wall(7 * SECOND_NS);
        first.renew(5);
        let mut second = wall(7 * SECOND_NS + 999_999_990);
        second.renew(5);
        assert_eq!(second.time_of(10), at(8, 0));
        assert!(second.adopt(first.reading()));
        assert_eq!(second.time_of(10), at(7, 10));
        assert!(!first.adopt(second.reading()));
        assert_eq!(first.time_of(10), at(7, 10));
    }

    #[test]
    fn a_stamp_from_the_future_does_not_end_the_readings() {
        let mut first = wall(7 * SECOND_NS);
        let mut second = wall(7 * SECOND_NS);
        second.renew(u64::MAX / 2);
        first.adopt(second.reading().no_later_than(5));
        OFFSET.set(9 * SECOND_NS);
        first.renew(5 + INTERVAL_NS);
        assert_eq!(first.time_of(10), at(9, 10));
    }

    #[test]
    fn the_offset_follows_the_clock_and_not_its_noise() {
        let mut wall = wall(SECOND_NS);
        wall.renew(SECOND_NS);
        assert_eq!(wall.time_of(SECOND_NS), at(2, 0));
        OFFSET.set(SECOND_NS + 5000);
        wall.renew(SECOND_NS + INTERVAL_NS - 1);
        assert_eq!(wall.time_of(SECOND_NS), at(2, 0), "not due");
        wall.renew(SECOND_NS + INTERVAL_NS);
        assert_eq!(wall.time_of(SECOND_NS), at(2, 5000));
        OFFSET.set(SECOND_NS + 5000 - 999);
        wall.renew(SECOND_NS + 2 * INTERVAL_NS);
        assert_eq!(wall.time_of(SECOND_NS), at(2, 5000), "noise");
        OFFSET.set(SECOND_NS - 5000);
        wall.renew(SECOND_NS + 3 * INTERVAL_NS);
        assert_eq!(wall.time_of(SECOND_NS), at(1, 999_995_000), "set back");
    }
}
