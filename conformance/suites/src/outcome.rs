//! The result of a suite on one variant.

use std::collections::BTreeSet;
use std::fmt;

/// The numbers of tests that passed, failed and were skipped, and the names of the failed tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    pub(crate) skipped: usize,
    pub(crate) failing: BTreeSet<String>,
}

impl Outcome {
    pub(crate) fn executed(&self) -> usize {
        self.passed + self.failing.len()
    }

    /// Counts a test.
    pub(crate) fn add(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.fail(name);
        }
    }

    /// Counts a failed test. Several failed tests of the same name are counted separately.
    pub(crate) fn fail(&mut self, name: &str) {
        let mut unique = name.to_owned();
        let mut number = 2;
        while !self.failing.insert(unique) {
            unique = format!("{name} ({number})");
            number += 1;
        }
    }

    /// Adds the outcome of another part of the same suite.
    pub(crate) fn absorb(&mut self, part: Self) {
        self.passed += part.passed;
        self.skipped += part.skipped;
        for name in part.failing {
            self.fail(&name);
        }
    }

    /// Whether the same tests passed in both outcomes.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.passed == other.passed && self.failing == other.failing
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failing.len();
        write!(
            out,
            "{} passed, {failed} failed, {} skipped",
            self.passed, self.skipped
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_one_name_count_each() {
        let mut outcome = Outcome::default();
        for passed in [false, true, false] {
            outcome.add("read", passed);
        }
        assert_eq!(outcome.to_string(), "1 passed, 2 failed, 0 skipped");
        let mut both = outcome.clone();
        both.absorb(outcome.clone());
        assert_eq!(both.executed(), 6);
        assert!(!both.equals(&outcome));
    }

    #[test]
    fn another_failure_is_a_difference() {
        let (mut one, mut other) = (Outcome::default(), Outcome::default());
        one.add("read", false);
        other.add("write", false);
        assert!(!one.equals(&other));
    }
}
