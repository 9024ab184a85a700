//! The clock of a device, compared with the kernel's monotonic clock.

/// Converts the stamps of a device's clock, whose rate is not known, to `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceClock {
    first: Option<Reading>,
    last: Option<Reading>,
    /// Nanoseconds of a tick; 0 before the second reading.
    rate: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    ticks: u64,
    now_ns: u64,
}

/// A stamp that differs more than this from the last reading is wrong: the device's clock was set.
const FAR_NS: f64 = 2e9;

/// A reading that differs more than this from the expected time has another cause than the clocks'
/// rates: the device's clock was set, or the process stood still between the readings of the two.
const SET_NS: u64 = 10_000_000;

impl DeviceClock {
    /// Notes that both clocks have these values at the same time. The first two readings should be
    /// 100 ms apart.
    pub fn read(&mut self, ticks: u64, now_ns: u64) {
        let reading = Reading { ticks, now_ns };
        let first = *self.first.get_or_insert(reading);
        let is_expected = self.is_expected(reading);
        self.last = Some(reading);
        let ticks = passed(first.ticks, ticks);
        let ns = now_ns.saturating_sub(first.now_ns);
        if ticks > 0 && ns > 0 && is_expected {
            self.rate = ns as f64 / ticks as f64;
        } else if first != reading {
            // The device's clock stands still, or was set.
            *self = Self::default();
        }
    }

    /// Whether a reading is about what the readings before it let expect.
    fn is_expected(&self, reading: Reading) -> bool {
        let has_rate = self.rate > 0.0;
        let expected = self.monotonic_ns(reading.ticks);
        !has_rate || expected.is_some_and(|it| it.abs_diff(reading.now_ns) <= SET_NS)
    }

    /// The time of a stamp, in nanoseconds of `CLOCK_MONOTONIC`. `None` if it is not known yet.
    #[inline]
    pub fn monotonic_ns(&self, stamp: u64) -> Option<u64> {
        let last = self.last.filter(|_| self.rate > 0.0)?;
        let passed = passed(last.ticks, stamp) as f64 * self.rate;
        if passed.abs() > FAR_NS {
            return None;
        }
        // At most two seconds in nanoseconds.
        #[allow(clippy::cast_possible_truncation, reason = "see above")]
        let passed = passed as i64;
        last.now_ns.checked_add_signed(passed)
    }
}

/// The ticks from one stamp to another.
fn passed(from: u64, to: u64) -> i64 {
    to.wrapping_sub(from) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_gets_its_time_after_two_readings() {
        let mut clock = DeviceClock::default();
        assert_eq!(clock.monotonic_ns(5), None);
        // 156.25 MHz: 6.4 ns a tick.
        clock.read(1_000_000, 50_000_000_000);
        assert_eq!(clock.monotonic_ns(1_000_000), None);
        clock.read(1_000_000 + 15_625_000, 50_100_000_000);
        let last = 16_625_000;
        assert_eq!(clock.monotonic_ns(last), Some(50_100_000_000));
        assert_eq!(clock.monotonic_ns(last + 10), Some(50_100_000_064));
        assert_eq!(clock.monotonic_ns(last - 10), Some(50_099_999_936));
    }

    #[test]
    fn a_clock_that_was_set_gives_no_times_until_it_was_read_twice() {
        let mut clock = DeviceClock::default();
        clock.read(100, 1_000);
        clock.read(1_100, 2_000);
        assert_eq!(clock.monotonic_ns(1_000_000_000_000), None);
        clock.read(50, 3_000);
        assert_eq!(clock.monotonic_ns(60), None);
        clock.read(100, 3_100);
        clock.read(200, 3_300);
        assert_eq!(clock.monotonic_ns(210), Some(3_320));
        let mut clock = DeviceClock::default();
        clock.read(7, 1_000);
        clock.read(7, 2_000);
        assert_eq!(clock.monotonic_ns(7), None, "a clock that stands still");
    }

    /// A tick of this clock is a nanosecond. One reading comes 40 ms late, or the clock is set an
    /// hour forward.
    #[test]
    fn a_reading_that_is_not_expected_is_the_last_one_of_its_rate() {
        const HOUR: u64 = 3_600_000_000_000;
        const READINGS: u64 = 100_000_000;
        for (ticks, late) in [(0, 40_000_000), (HOUR, 0), (1_000_000_000, 0)] {
            let mut clock = DeviceClock::default();
            (0..5).for_each(|it| clock.read(it * READINGS, it * READINGS));
            clock.read(5 * READINGS + ticks, 5 * READINGS + late);
            assert_eq!(clock.monotonic_ns(5 * READINGS + ticks), None, "{ticks}");
            for it in 6..9 {
                clock.read(it * READINGS + ticks, it * READINGS);
            }
            let stamp = 8 * READINGS + ticks + 50;
            assert_eq!(
                clock.monotonic_ns(stamp),
                Some(8 * READINGS + 50),
                "{ticks}"
            );
        }
    }
}
