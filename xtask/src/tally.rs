//! How many tests passed, failed and were skipped.

use std::fmt;
use std::ops::AddAssign;

/// Counts of one tier, or the sum of several tiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// How many of the skipped tests need what a machine may lack, even in CI.
    pub(crate) optional: usize,
    /// The names of failed tests.
    pub(crate) failures: Vec<String>,
    /// Tests that failed once and passed when they ran again, alone.
    pub(crate) unsteady: Vec<String>,
}

impl Tally {
    pub(crate) fn one_failed(name: &str) -> Self {
        Self {
            failed: 1,
            failures: vec![name.to_owned()],
            ..Self::default()
        }
    }

    /// The counts of a tier that can't run here, and that has printed the reason.
    pub(crate) fn one_skipped() -> Self {
        Self {
            skipped: 1,
            ..Self::default()
        }
    }

    /// Number of tests that ran.
    pub(crate) fn executed(&self) -> usize {
        self.passed + self.failed
    }

    /// Counts one named check and prints its result.
    pub(crate) fn check(&mut self, name: &str, outcome: &anyhow::Result<String>) {
        match outcome {
            Ok(detail) => println!("  ok    {name}: {detail}"),
            Err(error) => println!("  FAIL  {name}: {error:#}"),
        }
        match outcome {
            Ok(_) => self.passed += 1,
            Err(_) => *self += Self::one_failed(name),
        }
    }

    /// Counts a failed test as passed, because it passed when it ran again.
    pub(crate) fn forgive(&mut self, test: &str) {
        self.failures.retain(|failed| failed != test);
        self.unsteady.push(test.to_owned());
        self.failed -= 1;
        self.passed += 1;
    }

    /// Counts one check that can't run here and prints the reason.
    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        println!("  skip  {name}: {reason}");
        self.skipped += 1;
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.optional += other.optional;
        self.failures.extend(other.failures);
        self.unsteady.extend(other.unsteady);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
            ..
        } = self;
        write!(out, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_passes_the_second_time_is_named() {
        let mut tally = Tally::one_failed("a");
        tally += Tally::one_failed("b");
        tally.forgive("a");
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 0 skipped");
        assert_eq!((&*tally.failures[0], &*tally.unsteady[0]), ("b", "a"));
    }
}
