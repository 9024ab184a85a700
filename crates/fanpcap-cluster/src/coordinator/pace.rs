//! The coordinator's own time: counts what passes between steps, and trusts no jump of a clock.

use std::time::Duration;

/// How often a step is due.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Most that counts between two steps.
const MOST: Duration = Duration::from_millis(200);

/// Time since the first step.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<Duration>,
    own: Duration,
}

impl Pace {
    /// The coordinator's own time at the clock's time `now`.
    pub(super) fn advance(&mut self, now: Duration) -> Duration {
        let last = self.last.replace(now).unwrap_or(now);
        self.own += now.saturating_sub(last).min(MOST);
        self.own
    }
}
