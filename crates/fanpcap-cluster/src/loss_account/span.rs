//! A number that is known to lie between two others.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A number that is known to lie between two others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// The number is at least this value.
    pub least: i64,
    /// The number is at most this value.
    pub most: i64,
}

impl Span {
    /// An exact number.
    pub fn exactly(number: i64) -> Self {
        Self {
            least: number,
            most: number,
        }
    }

    /// Whether the lower limit equals the upper limit, so that the number is known.
    pub fn is_exact(self) -> bool {
        self.least == self.most
    }

    /// Whether `number` is within the limits.
    pub fn has(self, number: i64) -> bool {
        self.least <= number && number <= self.most
    }

    /// How much the number has grown since `before`. Both spans must have the same unknown part.
    pub(super) fn since(self, before: Self) -> Self {
        let least = self.least.saturating_sub(before.least);
        let most = self.most.saturating_sub(before.most);
        Self {
            least: least.min(most),
            most: most.max(least),
        }
    }

    /// The same span, but with negative limits set to 0.
    pub fn not_negative(self) -> Self {
        Self {
            least: self.least.max(0),
            most: self.most.max(0),
        }
    }
}

impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            least: self.least.saturating_add(other.least),
            most: self.most.saturating_add(other.most),
        }
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            least: self.least.saturating_sub(other.most),
            most: self.most.saturating_sub(other.least),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_exact() {
            self.least.fmt(f)
        } else {
            write!(f, "{}..{}", self.least, self.most)
        }
    }
}

/// The sum of numbers, or `i64::MAX` if it is greater.
pub(super) fn sum(numbers: impl Iterator<Item = i64>) -> i64 {
    numbers.fold(0, i64::saturating_add)
}

/// A count as a signed number.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
