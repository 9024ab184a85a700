//! The sums over the members that are gone. The table has two places for the sums, and only one of
//! them is valid at a time.

use super::{Table, at};

/// Sums over the members that are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinalCounters {
    /// The number of members that are gone.
    pub members: u64,
    /// Packets that the kernel received for these members, dropped ones included.
    pub received: u64,
    /// How many of these packets found no room in the members' rings.
    pub dropped: u64,
    /// Packets that these members took themselves.
    pub taken: u64,
    /// Packets that other members took from the rings of these members.
    pub inherited: u64,
    /// Packets in the rings of these members that no member took.
    pub unread: u64,
    /// The number of these members of which at least one counter is unknown.
    pub unknown: u64,
}

impl FinalCounters {
    /// A member whose counters are all unknown.
    pub(crate) const UNKNOWN: Self = Self {
        members: 1,
        received: 0,
        dropped: 0,
        taken: 0,
        inherited: 0,
        unread: 0,
        unknown: 1,
    };

    /// The counters in their order in the table.
    fn words(&mut self) -> [&mut u64; 7] {
        [
            &mut self.members,
            &mut self.received,
            &mut self.dropped,
            &mut self.taken,
            &mut self.inherited,
            &mut self.unread,
            &mut self.unknown,
        ]
    }

    pub(crate) fn with(&self, more: &Self) -> Self {
        let (mut both, mut more) = (*self, *more);
        for (sum, more) in both.words().into_iter().zip(more.words()) {
            *sum = sum.saturating_add(*more);
        }
        both
    }
}

impl Table<'_> {
    pub(crate) fn gone(&self) -> FinalCounters {
        let in_use = usize::from(self.get(at::SUMS_IN_USE) & 1 == 1);
        let mut gone = FinalCounters::default();
        set_all(gone.words(), self.words_at(at::SUMS[in_use]));
        gone
    }

    /// Writes the sums to the place that is not valid. Returns that place.
    pub(crate) fn prepare_gone(&self, gone: &FinalCounters) -> u8 {
        let other = u8::from(self.get(at::SUMS_IN_USE) & 1 == 0);
        let mut gone = *gone;
        let words = gone.words().map(|word| *word);
        self.set_words(at::SUMS[usize::from(other)], words);
        other
    }
}

/// Sets each of `figures` from the word at the same place in `words`.
pub(super) fn set_all<const COUNT: usize>(figures: [&mut u64; COUNT], words: [u64; COUNT]) {
    for (figure, word) in figures.into_iter().zip(words) {
        *figure = word;
    }
}
