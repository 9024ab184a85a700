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

impl DeviceClock {
    /// Notes that both clocks have these values at the same time. The first two readings should be
    /// 100 ms apart.
    pub fn read(&mut self, ticks: u64, now_ns: u64) {
        let reading = Reading { ticks, now_ns };
        let first = *self.first.get_or_insert(reading);
        self.last = Some(reading);
        let ticks = passed(first.ticks, ticks);
        let ns = now_ns.saturating_sub(first.now_ns);
        if ticks > 0 && ns > 0 {
            self.rate = ns as f64 / ticks as f64;
        } else if first != reading {
            // The device's clock stands still, or was set.
            *self = Self::default();
        }
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
}
