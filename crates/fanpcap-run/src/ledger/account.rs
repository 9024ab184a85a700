//! The account of packets: of one member, of a copy, or of all copies.

use serde::Serialize;

/// Numbers of packets; `None` for an unknown number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Account {
    /// Packets that the kernel gave the members, including dropped ones.
    pub(crate) received: Option<u64>,
    /// Packets that the kernel dropped because a ring was full.
    pub(crate) dropped: Option<u64>,
    /// Packets that the application took from the ring.
    pub(crate) taken: Option<u64>,
    /// Packets that other members of the group took from the ring after the member ended.
    pub(crate) inherited: Option<u64>,
    /// Packets that were in the ring when the member ended and that no member took.
    pub(crate) unread: Option<u64>,
    /// Packets that the kernel gave to the ended member's socket until the socket left the group.
    pub(crate) refused: Option<u64>,
    /// Upper bound of the packets that no other number of the account contains. Such packets came
    /// while a member joined or changed its filter, or came to a member that ended before its
    /// socket was held. The bound is the increase of the device's counter in that time.
    pub(crate) uncounted_at_most: Option<u64>,
}

impl Account {
    /// The account of a member that has not joined.
    pub(crate) const ZERO: Self = Self {
        received: Some(0),
        dropped: Some(0),
        taken: Some(0),
        inherited: Some(0),
        unread: Some(0),
        refused: Some(0),
        uncounted_at_most: Some(0),
    };

    /// An account in which all numbers are 0, except the upper bound of uncounted packets.
    pub(crate) fn uncounted(at_most: Option<u64>) -> Self {
        Self {
            uncounted_at_most: at_most,
            ..Self::ZERO
        }
    }

    /// The sum. A number of the sum is unknown if it is unknown in either account.
    pub(crate) fn plus(self, other: Self) -> Self {
        let sum = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
        Self {
            received: sum(self.received, other.received),
            dropped: sum(self.dropped, other.dropped),
            taken: sum(self.taken, other.taken),
            inherited: sum(self.inherited, other.inherited),
            unread: sum(self.unread, other.unread),
            refused: sum(self.refused, other.refused),
            uncounted_at_most: sum(self.uncounted_at_most, other.uncounted_at_most),
        }
    }

    /// This account with its bound of uncounted packets limited to `ceiling`.
    pub(crate) fn below(self, ceiling: Option<u64>) -> Self {
        let at_most = |at_most: u64| ceiling.map_or(at_most, |ceiling| at_most.min(ceiling));
        Self {
            uncounted_at_most: self.uncounted_at_most.map(at_most),
            ..self
        }
    }

    /// The sum of all accounts; all numbers are unknown if there is no account.
    pub(crate) fn sum(accounts: impl Iterator<Item = Self>) -> Self {
        accounts.reduce(Self::plus).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_figures_overflow_nothing() {
        let forged = Account {
            received: Some(u64::MAX),
            dropped: Some(1),
            ..Account::default()
        };
        let sum = Account::sum([forged, forged].into_iter());
        assert_eq!((sum.received, sum.dropped), (Some(u64::MAX), Some(2)));
    }

    #[test]
    fn unknown_parts_make_unknown_sums() {
        let known = Account {
            received: Some(3),
            dropped: Some(1),
            ..Account::default()
        };
        let sum = Account::sum([known, known].into_iter());
        assert_eq!(
            (sum.received, sum.dropped, sum.taken),
            (Some(6), Some(2), None)
        );
        assert_eq!(Account::sum(std::iter::empty()), Account::default());
        assert_eq!(known.plus(Account::default()).received, None);
        assert_eq!(known.plus(Account::ZERO), known);
    }
}
