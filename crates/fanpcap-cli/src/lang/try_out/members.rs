//! A set of members.

/// The most members that `try` distinguishes.
pub(super) const MEMBERS_MAX: u16 = 256;

const WORD: usize = 64;

/// A set of members, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Members([u64; MEMBERS_MAX as usize / WORD]);

impl Members {
    /// The empty set.
    pub(super) const NONE: Self = Self([0; 4]);

    /// One member, with a number below [`MEMBERS_MAX`].
    pub(super) fn one(number: usize) -> Self {
        let mut set = Self::NONE;
        set.0[number / WORD] = 1 << (number % WORD);
        set
    }

    pub(super) fn or(self, other: Self) -> Self {
        let mut set = self;
        set.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(one, two)| *one |= two);
        set
    }

    pub(super) fn and(self, other: Self) -> Self {
        let mut set = self;
        set.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(one, two)| *one &= two);
        set
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// The numbers of the members, in order.
    pub(super) fn numbers(self) -> impl Iterator<Item = usize> {
        let has = move |number: &usize| (self.0[number / WORD] >> (number % WORD)) & 1 == 1;
        (0..usize::from(MEMBERS_MAX)).filter(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(set: Members) -> Vec<usize> {
        set.numbers().collect()
    }

    #[test]
    fn sets_meet_and_join() {
        let (one, two) = (Members::one(1), Members::one(130));
        assert!(one.and(two).is_empty());
        assert_eq!(numbers(one.or(two)), [1, 130]);
        assert_eq!(one.or(two).and(two), two);
    }
}
