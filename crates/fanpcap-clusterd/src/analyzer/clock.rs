//! A clock that shows the time of day and never jumps.

use std::time::Instant;

use fanpcap_linux::wait::clock;

/// A second in nanoseconds. A smaller change of the clock is not reported.
const SECOND: u64 = 1_000_000_000;

/// The time of day at which the analyzer started, plus the time since then on a monotonic clock. So
/// setting the machine's clock neither stops an analyzer nor makes all nodes look silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    wall: u64,
    begun: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            wall: clock::realtime_ns(),
            begun: Instant::now(),
        }
    }

    /// Nanoseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        let since = u64::try_from(self.begun.elapsed().as_nanos());
        self.wall.saturating_add(since.unwrap_or(u64::MAX))
    }
}

/// Notices that the machine's clock was set after the analyzer began.
#[derive(Debug)]
pub(super) struct ClockJumps {
    clock: Clock,
    /// How many nanoseconds the machine's clock was ahead of `clock` at the last report.
    reported: i64,
}

impl ClockJumps {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, reported: 0 }
    }

    /// Returns a message if the machine's clock, now at `machines`, was set since the last message.
    pub(super) fn due(&mut self, machines: u64) -> Option<String> {
        // The difference in two's complement is also right if the clock was set back.
        let ahead = machines.wrapping_sub(self.clock.now()) as i64;
        if ahead.abs_diff(self.reported) < SECOND {
            return None;
        }
        self.reported = ahead;
        let by = ahead.unsigned_abs() / SECOND;
        let way = if ahead < 0 { "back" } else { "ahead" };
        Some(match by {
            0 => "this machine's clock and the analyzer's are the same again".to_owned(),
            _ => format!(
                "this machine's clock was set {way} by {by} s since the analyzer began, and the \
                 analyzer still uses the old time: restart the analyzer"
            ),
        })
    }
}

/// Formats nanoseconds since 1970 as RFC 3339 says: in UTC, to the second.
pub(super) fn rfc3339(time: u64) -> String {
    clock::rfc3339(time / SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_told_of_once() {
        let clock = Clock::start();
        let mut jumps = ClockJumps::new(clock);
        assert_eq!(jumps.due(clock.now() + SECOND / 2), None);
        assert_eq!(jumps.due(clock.now() - SECOND / 2), None);
        let said = jumps.due(clock.now() + 60 * SECOND + SECOND / 2).unwrap();
        assert!(said.contains("set ahead by 60 s") && said.contains("restart the analyzer"));
        assert_eq!(jumps.due(clock.now() + 60 * SECOND + SECOND / 2), None);
        let said = jumps.due(clock.now() - 3600 * SECOND - SECOND / 2).unwrap();
        assert!(said.contains("set back by 3600 s"), "{said}");
        assert!(jumps.due(clock.now()).unwrap().contains("the same again"));
    }
}
