//! A coordinator's term. If several coordinators lead, nodes follow the one with the greatest term.

use std::fmt;

use crate::identity::Revision;

/// The maximum number of coordinators in a cluster. Each coordinator's own number is below 16.
pub const COORDINATORS: u8 = 16;

/// The greatest round of a term.
const LAST: u32 = u32::MAX / COORDINATORS as u32;

/// How many rounds a term may be ahead of all terms that the receiver knows.
const AHEAD: u32 = LAST / 4;

/// A period in which one coordinator is the active one. If two coordinators lead, nodes follow the
/// greater term.
///
/// The upper 28 bits are the term's round, a counter that coordinators store. The lower 4 bits are
/// the coordinator's number. So no two coordinators ever have the same term, even if they can't
/// hear each other. No coordinator has term 0.
///
/// A coordinator's next round is one more than the greatest round that it knows. A coordinator that
/// has lost its file may repeat a term until it hears of a greater term. Even then, the coordinator
/// does not repeat revisions, because each process begins to count at a random number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Term(pub u32);

impl Term {
    /// The next term of the coordinator `number`, where `self` is the greatest known term.
    pub fn next(self, number: u8) -> Self {
        let round = (self.round() + 1).min(LAST);
        Self(round * u32::from(COORDINATORS) + u32::from(number % COORDINATORS))
    }

    /// Whether a receiver that knows the term `known` accepts this term. A term whose round is far
    /// ahead is not accepted, because it would leave too few greater terms.
    pub fn is_plausible(self, known: Self) -> bool {
        self.round() <= known.round().saturating_add(AHEAD).min(LAST - 1)
    }

    pub(super) fn round(self) -> u32 {
        self.0 / u32::from(COORDINATORS)
    }

    /// The term in which `revision` was given.
    pub fn of(revision: Revision) -> Self {
        let [upper, _] = super::avp::halves(revision.0);
        Self(upper)
    }

    /// The first revision of this term that is newer than `last`; `None` if there is none. The
    /// revisions of a term begin after `begin`, which is random for each process. Otherwise, a
    /// coordinator that has lost its file and gets the same term again could give a revision twice.
    pub fn after(self, last: Option<Revision>, begin: u32) -> Option<Revision> {
        let begin = super::avp::joined(self.0, begin);
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
        let first = Term::default().next(3);
        assert_eq!(first, Term(16 + 3));
        assert!(first.next(0) > first && Term::default().next(2) != first);
        let one = first.after(None, 0).unwrap();
        assert_eq!(Term::of(one), first);
        assert_eq!(first.after(Some(one), 0), Some(Revision(one.0 + 1)));
        assert_eq!(
            first.next(1).after(Some(one), 0),
            Some(Revision((33 << 32) + 1))
        );
        assert_eq!(first.after(Some(Revision(200 << 32)), 0), None);
        let drawn = first.after(None, 700).unwrap();
        assert_eq!(drawn, Revision(one.0 + 700));
        assert_eq!(first.after(Some(drawn), 700), Some(Revision(one.0 + 701)));
        assert_eq!(Term(u32::MAX).next(15), Term(u32::MAX));
    }

    #[test]
    fn no_term_is_the_last() {
        for known in [Term::default(), Term(5000), Term(u32::MAX)] {
            assert!(!Term(u32::MAX).is_plausible(known));
        }
        assert!(Term(5000).is_plausible(Term::default()));
        let far = Term(u32::MAX / 2);
        assert!(!far.is_plausible(Term(5000)) && far.next(0).is_plausible(far));
    }
}
