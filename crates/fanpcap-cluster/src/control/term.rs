//! A coordinator's term: which of several active coordinators counts.

use std::fmt;

use crate::identity::Revision;

/// Most coordinators of a cluster. Their numbers are below.
pub const COORDINATORS: u8 = 64;

/// The time that one coordinator is the active one: the greater term counts.
///
/// The upper 26 bits count elections. The lower 6 are the coordinator's number, so that no two
/// coordinators ever have one term, whatever they could not hear of each other. Term 0 is nobody's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Term(pub u32);

impl Term {
    /// The term of the coordinator `number` in the election after this term's. When the count of
    /// elections is at its end (one each second for two years), it stays there.
    pub fn next(self, number: u8) -> Self {
        let round = (self.0 / u32::from(COORDINATORS) + 1).min(u32::MAX / u32::from(COORDINATORS));
        Self(round * u32::from(COORDINATORS) + u32::from(number % COORDINATORS))
    }

    /// The term in which a revision was given.
    pub fn of(revision: Revision) -> Self {
        let [upper, _] = super::avp::halves(revision.0);
        Self(upper)
    }

    /// The first revision of this term that is newer than `last`, or `None`: the term can give none.
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
        let first = Term::default().next(3);
        assert_eq!(first, Term(64 + 3));
        assert!(first.next(0) > first && Term::default().next(2) != first);
        let one = first.after(None).unwrap();
        assert_eq!(Term::of(one), first);
        assert_eq!(first.after(Some(one)), Some(Revision(one.0 + 1)));
        assert_eq!(
            first.next(1).after(Some(one)),
            Some(Revision((129 << 32) + 1))
        );
        assert_eq!(first.after(Some(Revision(200 << 32))), None);
        assert_eq!(Term(u32::MAX).next(63), Term(u32::MAX));
    }
}
