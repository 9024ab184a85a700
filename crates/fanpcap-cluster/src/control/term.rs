//! A coordinator's term: which of several active coordinators counts.

use std::fmt;
use std::time::Duration;

use crate::identity::Revision;

/// Most coordinators of a cluster. Their numbers are below.
pub const COORDINATORS: u8 = 16;

/// How long a round by the clock is.
pub(super) const ROUND: Duration = Duration::from_secs(8);

/// When the first round by the clock began: 2026, in seconds since 1970.
const BEGIN: u64 = 1_767_225_600;

/// The time that one coordinator is the active one: the greater term counts.
///
/// The upper 28 bits are its round. The lower 4 are the coordinator's number, so that no two
/// coordinators ever have one term, whatever they could not hear of each other. Term 0 is nobody's.
///
/// A coordinator's next round is greater than all it knows, and not less than what the clock says:
/// one that has lost its file does not take a term of its earlier life again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Term(pub u32);

impl Term {
    /// The term after this one of the coordinator `number`, at the time `clock` since 1970. Rounds
    /// by the clock last until the year 2094.
    pub fn next(self, number: u8, clock: Duration) -> Self {
        let of_clock = clock.as_secs().saturating_sub(BEGIN) / ROUND.as_secs();
        let of_clock = u32::try_from(of_clock).unwrap_or(u32::MAX);
        let after = self.0 / u32::from(COORDINATORS) + 1;
        let round = after.max(of_clock).min(u32::MAX / u32::from(COORDINATORS));
        Self(round * u32::from(COORDINATORS) + u32::from(number % COORDINATORS))
    }

    /// The term in which a revision was given.
    pub fn of(revision: Revision) -> Self {
        let [upper, _] = super::avp::halves(revision.0);
        Self(upper)
    }

    /// The first revision of this term that is newer than `last`; `None` if there is none.
    pub fn after(self, last: Option<Revision>) -> Option<Revision> {
        let begin = super::avp::joined(self.0, 0);
        let last = last.map_or(begin, |last| last.0.max(begin));
        let next = Revision(last.checked_add(1)?);
        (Self::of(next) == self).then_some(next)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_differ_and_revisions_grow() {
        let never = Duration::ZERO;
        let first = Term::default().next(3, never);
        assert_eq!(first, Term(16 + 3));
        assert!(first.next(0, never) > first && Term::default().next(2, never) != first);
        let one = first.after(None).unwrap();
        assert_eq!(Term::of(one), first);
        assert_eq!(first.after(Some(one)), Some(Revision(one.0 + 1)));
        assert_eq!(
            first.next(1, never).after(Some(one)),
            Some(Revision((33 << 32) + 1))
        );
        assert_eq!(first.after(Some(Revision(200 << 32))), None);
        assert_eq!(Term(u32::MAX).next(15, never), Term(u32::MAX));
        let at = |seconds| Duration::from_secs(BEGIN + seconds);
        assert_eq!(Term::default().next(1, at(80)), Term(161));
        assert!(
            Term(161).next(1, at(80)) > Term(161),
            "the clock does not hold rounds up"
        );
        assert_eq!(
            Term::default().next(1, at(80)),
            Term::default().next(1, at(87))
        );
    }
}
