//! How many tests passed, failed and were skipped.

use std::fmt;
use std::ops::AddAssign;

/// Counts of one tier, or of several added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Tally {
    pub(crate) fn one_passed() -> Self {
        Self {
            passed: 1,
            ..Self::default()
        }
    }

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
    pub(crate) fn executed(self) -> usize {
        self.passed + self.failed
    }

    /// Counts one named check and says how it went.
    pub(crate) fn check(&mut self, name: &str, outcome: &anyhow::Result<String>) {
        match outcome {
            Ok(detail) => println!("  ok    {name}: {detail}"),
            Err(error) => println!("  FAIL  {name}: {error:#}"),
        }
        *self += match outcome {
            Ok(_) => Self::one_passed(),
            Err(_) => Self::one_failed(),
        };
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
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(out, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}
