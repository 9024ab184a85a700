//! The journal of a table: the change that is under way.

use super::{Table, at};
use fanpcap_buckets::Slot;

/// The change that is under way. If the process that made the change has died, the next holder of
/// the group's lock completes the change first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Journal {
    /// No change is under way.
    Nothing,
    /// The newcomer of [`at::NEWCOMER`] joins into this slot.
    Join(Slot),
    /// Buckets move between members, as the states and weights in the rows say.
    Balance,
    /// A slot becomes a placeholder. The number says which of the two places for the sums becomes
    /// valid.
    Vacate(Slot, u8),
    /// The last slot is given up.
    Trim(Slot),
    /// Slots get new numbers.
    Renumber,
    /// The second slot gets all buckets and ranks, and the sticky id, of the first slot.
    Succeed(Slot, Slot),
}

impl Journal {
    fn encode(self) -> u64 {
        let (step, slot, more) = match self {
            Self::Nothing => (0, 0, 0),
            Self::Join(slot) => (1, slot.0, 0),
            Self::Balance => (2, 0, 0),
            Self::Vacate(slot, sums) => (3, slot.0, sums),
            Self::Trim(slot) => (4, slot.0, 0),
            Self::Renumber => (5, 0, 0),
            Self::Succeed(from, to) => (6, from.0, to.0),
        };
        u64::from_le_bytes([step, slot, more, 0, 0, 0, 0, 0])
    }

    fn decode(word: u64) -> Self {
        let [step, slot, more, ..] = word.to_le_bytes();
        match step {
            1 => Self::Join(Slot(slot)),
            2 => Self::Balance,
            3 => Self::Vacate(Slot(slot), more & 1),
            4 => Self::Trim(Slot(slot)),
            5 => Self::Renumber,
            6 => Self::Succeed(Slot(slot), Slot(more)),
            _ => Self::Nothing,
        }
    }
}

impl Table<'_> {
    pub(crate) fn journal(&self) -> Journal {
        Journal::decode(self.get(at::JOURNAL))
    }

    pub(crate) fn set_journal(&self, journal: Journal) {
        self.set(at::JOURNAL, journal.encode());
    }
}
