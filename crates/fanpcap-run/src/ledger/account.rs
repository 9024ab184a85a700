//! What became of packets: of one member, of a copy, or of all.

use serde::Serialize;

/// Packets; none where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Account {
    /// Given to the members, those dropped included.
    pub(crate) received: Option<u64>,
    /// Dropped by the kernel, as a ring was full.
    pub(crate) dropped: Option<u64>,
    /// Taken from the ring and handed to the program.
    pub(crate) taken: Option<u64>,
    /// Taken from the ring by other members of the group after the member's end.
    pub(crate) inherited: Option<u64>,
    /// Left in the ring when the member ended, and taken by nobody.
    pub(crate) unread: Option<u64>,
    /// Sent to the member's place in the group after its end, until that was free.
    pub(crate) refused: Option<u64>,
    /// The most packets that may have come besides and are in no other figure: while a member
    /// joined or changed its filter, or to a member that ended before it could be held. The device
    /// has counted so many meanwhile.
    pub(crate) uncounted_at_most: Option<u64>,
}

impl Account {
    /// Of one that has not joined.
    pub(crate) const ZERO: Self = Self {
        received: Some(0),
        dropped: Some(0),
        taken: Some(0),
        inherited: Some(0),
        unread: Some(0),
        refused: Some(0),
        uncounted_at_most: Some(0),
    };

    /// The sum: unknown when a part is.
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

    /// The same, where no more than `ceiling` packets can be in no figure.
    pub(crate) fn below(self, ceiling: Option<u64>) -> Self {
        let at_most = |at_most: u64| ceiling.map_or(at_most, |ceiling| at_most.min(ceiling));
        Self {
            uncounted_at_most: self.uncounted_at_most.map(at_most),
            ..self
        }
    }

    /// The sum of all; unknown when there are none.
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
