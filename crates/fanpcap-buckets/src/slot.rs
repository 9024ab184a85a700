//! A slot, and the share of a group's buckets that it is due.

use crate::layout::SLOTS;

/// A position in the kernel's array of a group's sockets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u8);

impl Slot {
    /// The slot's index in an array of [`SLOTS`] entries.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The slot with this index in an array of [`SLOTS`] entries.
    pub(crate) fn at(index: usize) -> Self {
        Self(index.to_le_bytes()[0])
    }

    pub(crate) fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }
}

/// A slot and its weight. The slot is due this share of the group's buckets: its weight divided by
/// the sum of all weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The slot.
    pub slot: Slot,
    /// The share that the slot is due, compared with the other slots. A slot with weight 0 is due
    /// no buckets.
    pub weight: u16,
}

/// A number of buckets for each slot.
pub(crate) type Counts = [u32; SLOTS];

/// Indices of slots or buckets, ordered by a number. Every list that is sorted has this type, so
/// that the library has the code of only one sort.
pub(crate) type Ordered = Vec<(u64, usize)>;
