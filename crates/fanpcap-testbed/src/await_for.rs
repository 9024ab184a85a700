//! Waits for a condition, for a limited time.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fanpcap_linux::wait::{clock, stop};

/// Calls `condition` until it returns a value, and returns this value.
///
/// `limit` is multiplied by the variable `FANPCAP_PATIENCE`, which is set in emulated machines.
///
/// # Errors
/// Returns the error of `condition` at once. Returns an error that contains `what` when `limit` is
/// over, or when this process was asked to end.
pub fn await_for<T>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let limit = limit * patience();
    let begun = Instant::now();
    let deadline = begun + limit;
    loop {
        // Check once more after the deadline: a busy machine may have kept this thread from
        // checking.
        let late = Instant::now() > deadline;
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if stop::is_requested() {
            bail!("asked to end while waiting for {what}");
        }
        if late {
            bail!("waited {} s for {what}, without success", limit.as_secs());
        }
        thread::sleep((begun.elapsed() / 8).clamp(SHORTEST, LONGEST));
    }
}

/// Waits until `is_so` returns true.
///
/// # Panics
/// The condition does not hold within [`LIMIT`].
pub fn await_so(what: &str, mut is_so: impl FnMut() -> bool) {
    await_for(what, LIMIT, || Ok(is_so().then_some(()))).expect("the condition holds in time");
}

/// The factor by which the limits of all waits are multiplied.
fn patience() -> u32 {
    let set = env::var("FANPCAP_PATIENCE").ok();
    set.and_then(|set| set.parse().ok()).unwrap_or(1)
}

/// The longest wait for a condition in a test, enough on a loaded machine. If the condition is
/// still not met, the test fails, because something hangs.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The shortest and the longest pause between two checks. The pauses grow with the wait, because
/// checks that read all of /proc would otherwise take CPU time from the awaited process.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(20);

/// The time that an action may take now, if it takes at most `limit` on an idle machine.
pub fn within(limit: Duration) -> Duration {
    limit.mul_f64(slowness())
}

/// The factor by which the calling thread is slower now than with a CPU of its own.
fn slowness() -> f64 {
    let begun = Instant::now();
    let end = clock::thread_cpu_ns() + WORK_NS;
    while clock::thread_cpu_ns() < end {}
    let taken = begun.elapsed().as_secs_f64();
    (taken * 1e9 / WORK_NS as f64).max(1.0)
}

/// CPU time, in nanoseconds, of the work that [`slowness`] times. This time is longer than a time
/// slice of the scheduler, so that other threads run in between.
const WORK_NS: u64 = 20_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_shorter_than_it_was() {
        assert!(within(LIMIT) >= LIMIT);
    }
}
