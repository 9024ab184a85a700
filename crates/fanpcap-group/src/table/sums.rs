//! The sums over the members that are gone: two places, of which one holds.

use super::{Table, at};

/// Sums over the members that are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// Members.
    pub members: u64,
    /// Packets that the kernel received for them, dropped ones included.
    pub received: u64,
    /// Of these, packets that found no room in their rings.
    pub dropped: u64,
    /// Packets that they took themselves.
    pub taken: u64,
    /// Packets that others took from their rings after them.
    pub inherited: u64,
    /// Packets in their rings that nobody took.
    pub unread: u64,
    /// Members of which one of these figures is not known.
    pub unknown: u64,
}

impl Gone {
    /// One member of which nothing is known.
    pub(crate) const UNKNOWN: Self = Self {
        members: 1,
        received: 0,
        dropped: 0,
        taken: 0,
        inherited: 0,
        unread: 0,
        unknown: 1,
    };

    fn encode(&self) -> [u64; 7] {
        [
            self.members,
            self.received,
            self.dropped,
            self.taken,
            self.inherited,
            self.unread,
            self.unknown,
        ]
    }

    fn decode(words: [u64; 7]) -> Self {
        let [
            members,
            received,
            dropped,
            taken,
            inherited,
            unread,
            unknown,
        ] = words;
        Self {
            members,
            received,
            dropped,
            taken,
            inherited,
            unread,
            unknown,
        }
    }

    /// Both together.
    pub(crate) fn with(&self, more: &Self) -> Self {
        let (own, more) = (self.encode(), more.encode());
        Self::decode(std::array::from_fn(|at| own[at].saturating_add(more[at])))
    }
}

impl Table<'_> {
    /// The sums of all epitaphs.
    pub(crate) fn gone(&self) -> Gone {
        let in_use = usize::from(self.get(at::SUMS_IN_USE) & 1 == 1);
        Gone::decode(self.words_at(at::SUMS[in_use]))
    }

    /// Writes sums where they don't hold yet. Returns where that is.
    pub(crate) fn prepare_gone(&self, gone: &Gone) -> u8 {
        let other = u8::from(self.get(at::SUMS_IN_USE) & 1 == 0);
        self.set_words(at::SUMS[usize::from(other)], gone.encode());
        other
    }
}
