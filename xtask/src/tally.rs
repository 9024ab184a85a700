//! How many tests passed, failed and were skipped.

use std::fmt;
use std::ops::AddAssign;

/// Counts of one tier, or of several added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// What failed, by name.
    pub(crate) failures: Vec<String>,
    /// What failed once and passed when it ran again, alone.
    pub(crate) unsteady: Vec<String>,
}

impl Tally {
    pub(crate) fn one_failed() -> Self {
        Self {
            failed: 1,
            ..Self::default()
        }
    }

    /// A tier that can't run here, which has said why.
    pub(crate) fn one_skipped() -> Self {
        Self {
            skipped: 1,
            ..Self::default()
        }
    }

    /// Tests that ran.
    pub(crate) fn executed(&self) -> usize {
        self.passed + self.failed
    }

    /// Counts one named check and says how it went.
    pub(crate) fn check(&mut self, name: &str, outcome: &anyhow::Result<String>) {
        match outcome {
            Ok(detail) => println!("  ok    {name}: {detail}"),
            Err(error) => println!("  FAIL  {name}: {error:#}"),
        }
        match outcome {
            Ok(_) => self.passed += 1,
            Err(_) => {
                self.failed += 1;
                self.failures.push(name.to_owned());
            }
        }
    }

    /// Counts those of the failed as passed that passed when they were tried again.
    pub(crate) fn forgive(&mut self, tried: &Self) {
        let all_ran = tried.executed() >= self.failed;
        let (failed, passed) = self
            .failures
            .drain(..)
            .partition(|name| !all_ran || tried.failures.contains(name));
        (self.failures, self.unsteady) = (failed, passed);
        self.passed += self.unsteady.len();
        self.failed = self.failures.len();
    }

    /// Counts one check that can't run here and says why.
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

    fn failed(names: &[&str]) -> Tally {
        Tally {
            passed: 5,
            failed: names.len(),
            failures: names.iter().map(|&name| name.to_owned()).collect(),
            ..Tally::default()
        }
    }

    #[test]
    fn who_passes_the_second_time_is_named() {
        let mut tally = failed(&["a", "b"]);
        tally.forgive(&failed(&["b"]));
        assert_eq!(tally.to_string(), "6 passed, 1 failed, 0 skipped");
        assert_eq!(
            (tally.failures, tally.unsteady),
            (vec!["b".into()], vec!["a".into()])
        );
    }

    #[test]
    fn who_did_not_run_again_has_failed() {
        let mut tally = failed(&["a", "b"]);
        tally.forgive(&Tally::one_failed());
        assert_eq!(tally, failed(&["a", "b"]));
    }
}
