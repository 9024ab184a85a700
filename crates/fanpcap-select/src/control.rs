//! The control word: which of a node's two tables is in use. Storing the word switches tables.

/// The control word. The word 0 belongs to a node that has no table yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Control(u64);

/// `GENERATION` is the number of the table in use, and `ACTIVE` is set if a table is in use.
pub(crate) const GENERATION: u8 = 1;
pub(crate) const ACTIVE: u8 = 2;

impl Control {
    /// The position of the mark in the control word.
    pub(crate) const MARK_SHIFT: i32 = 32;

    /// The word that puts the table `generation`, 0 or 1, into use. Every record that is written
    /// while this table is in use has the mark.
    pub fn new(generation: usize, mark: u32) -> Self {
        let generation = if generation == 0 { 0 } else { GENERATION };
        Self((u64::from(mark) << Self::MARK_SHIFT) | u64::from(ACTIVE | generation))
    }

    /// The control word as it is stored in the map.
    pub fn word(self) -> u64 {
        self.0
    }

    /// Decodes the control word from the value that was stored.
    pub fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// The table that is in use; `None` before the first table, when all packets pass.
    pub fn generation(self) -> Option<usize> {
        let is_active = self.0 & u64::from(ACTIVE) != 0;
        is_active.then_some(usize::from(self.0 & u64::from(GENERATION) != 0))
    }

    /// The table that is not in use.
    pub fn idle(self) -> usize {
        self.generation().map_or(0, |generation| 1 - generation)
    }

    /// The mark that records get from the table in use.
    pub fn mark(self) -> u32 {
        (self.0 >> Self::MARK_SHIFT) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_take_turns() {
        let nothing = Control::default();
        assert_eq!((nothing.generation(), nothing.idle()), (None, 0));
        let first = Control::new(0, u32::MAX);
        assert_eq!((first.generation(), first.idle()), (Some(0), 1));
        let second = Control::of_word(Control::new(1, 7).word());
        assert_eq!((second.generation(), second.idle()), (Some(1), 0));
        assert_eq!((first.mark(), second.mark()), (u32::MAX, 7));
    }
}
