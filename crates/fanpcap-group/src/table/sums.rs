//! The sums over the members that are gone: two places, of which one holds.

use super::{Gone, Table, at};

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
