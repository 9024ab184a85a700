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

    /// One of `members` members: `number` modulo `members`.
    pub(super) fn one(number: u32, members: u16) -> Self {
        let member = number as usize % usize::from(members);
        let mut set = Self::NONE;
        set.0[member / WORD] = 1 << (member % WORD);
        set
    }

    /// The first `members` members.
    pub(super) fn all(members: u16) -> Self {
        let of = |number| Self::one(u32::from(number), members);
        (0..members).map(of).fold(Self::NONE, Self::or)
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
    fn a_number_says_which_member_whatever_it_is() {
        assert_eq!(numbers(Members::one(7, 4)), [3]);
        assert_eq!(numbers(Members::one(u32::MAX, 256)), [255]);
        assert_eq!(numbers(Members::all(3)), [0, 1, 2]);
        assert_eq!(Members::all(256).numbers().count(), 256);
    }

    #[test]
    fn sets_meet_and_join() {
        let (one, two) = (Members::one(1, 200), Members::one(130, 200));
        assert!(one.and(two).is_empty());
        assert_eq!(numbers(one.or(two)), [1, 130]);
        assert_eq!(one.or(two).and(two), two);
    }
}
