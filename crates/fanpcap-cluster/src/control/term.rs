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

/// The greatest round.
const LAST: u32 = u32::MAX / COORDINATORS as u32;

/// The greatest round by the clock, in 2060. Rounds after it are used by elections, one for each: a
/// clock that is far ahead uses none of them.
const LAST_BY_CLOCK: u32 = LAST / 2;

/// How far a term may be ahead of all that its receiver knows, in rounds: 17 years by the clock, so
/// that a machine that boots in 1970 is no obstacle.
const AHEAD: u32 = LAST / 4;

/// The time that one coordinator is the active one: the greater term counts.
///
/// The upper 28 bits are its round. The lower 4 are the coordinator's number, so that no two
/// coordinators ever have one term, whatever they could not hear of each other. Term 0 is nobody's.
///
/// A coordinator's next round is greater than all rounds it knows, and at least the clock's round.
/// So a coordinator that has lost its file does not repeat an earlier term, unless the terms were
/// ahead of its clock. Then the counts of the two lives differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Term(pub u32);

impl Term {
    /// The term after this one of the coordinator `number`, at the time `clock` since 1970. The
    /// clock gives rounds until the year 2060; from then on a round is one more than the last.
    pub fn next(self, number: u8, clock: Duration) -> Self {
        let round = (self.round() + 1).max(by_clock(clock)).min(LAST);
        Self(round * u32::from(COORDINATORS) + u32::from(number % COORDINATORS))
    }

    /// Whether a coordinator may have this term, for a receiver that knows of the term `known` at
    /// the time `clock` since 1970. One that is far ahead of both is a mistake, and would leave no
    /// greater term for anybody.
    pub fn is_plausible(self, known: Self, clock: Duration) -> bool {
        let greatest = known.round().max(by_clock(clock)).saturating_add(AHEAD);
        self.round() <= greatest.min(LAST - 1)
    }

    fn round(self) -> u32 {
        self.0 / u32::from(COORDINATORS)
    }

    /// The term in which a revision was given.
    pub fn of(revision: Revision) -> Self {
        let [upper, _] = super::avp::halves(revision.0);
        Self(upper)
    }

    /// The first revision of this term that is newer than `last`; `None` if there is none. The
    /// count of a term begins after `begin`, which each process has drawn: one that has lost its
    /// file may have a term of its earlier life again, and must not give a revision twice.
    pub fn after(self, last: Option<Revision>, begin: u32) -> Option<Revision> {
        let begin = super::avp::joined(self.0, begin);
        let last = last.map_or(begin, |last| last.0.max(begin));
        let next = Revision(last.checked_add(1)?);
        (Self::of(next) == self).then_some(next)
    }
}

/// The round of the time `clock` since 1970.
fn by_clock(clock: Duration) -> u32 {
    let round = clock.as_secs().saturating_sub(BEGIN) / ROUND.as_secs();
    u32::try_from(round).unwrap_or(u32::MAX).min(LAST_BY_CLOCK)
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
        let one = first.after(None, 0).unwrap();
        assert_eq!(Term::of(one), first);
        assert_eq!(first.after(Some(one), 0), Some(Revision(one.0 + 1)));
        assert_eq!(
            first.next(1, never).after(Some(one), 0),
            Some(Revision((33 << 32) + 1))
        );
        assert_eq!(first.after(Some(Revision(200 << 32)), 0), None);
        let drawn = first.after(None, 700).unwrap();
        assert_eq!(drawn, Revision(one.0 + 700));
        assert_eq!(first.after(Some(drawn), 700), Some(Revision(one.0 + 701)));
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

    #[test]
    fn no_clock_and_no_term_is_the_last() {
        let year = |year: u64| Duration::from_secs((year - 1970) * 31_556_952);
        let far = Term::default().next(1, year(2106));
        assert_eq!(far, Term::default().next(1, year(2500)));
        assert!(far.next(0, year(2026)) > far && far.next(0, year(2106)) > far);
        let now = Term::default().next(2, year(2027));
        let unset = Duration::ZERO;
        assert!(
            now.is_plausible(Term::default(), unset),
            "a clock that is not set"
        );
        for (known, clock) in [(now, unset), (Term::default(), year(2027))] {
            assert!(now.next(0, year(2028)).is_plausible(known, clock));
            assert!(!far.is_plausible(known, clock));
        }
        for known in [now, far, Term(u32::MAX)] {
            assert!(!Term(u32::MAX).is_plausible(known, year(2106)));
        }
        assert!(far.next(0, unset).is_plausible(far, unset));
    }
}
