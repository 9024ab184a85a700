//! How far a reader has come in its ring: what another process needs to go on after its death.

/// How far a reader has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Frames taken since the ring was made.
    pub taken: u64,
    /// Which block is being read, or comes next; of no use for a ring without blocks.
    pub mark: Mark,
}

/// A block and the frames that had been taken when it began, 32 bits of each: one word, so that
/// whoever reads it while it is written gets the two that belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(u64);

impl Mark {
    /// The kernel's first block.
    pub(crate) const FIRST: Self = Self(1 << 32);

    /// The block that the kernel calls `sequence`, at whose begin so many frames were `taken`.
    pub(crate) fn new(sequence: u64, taken: u64) -> Self {
        Self((sequence << 32) | (taken & 0xffff_ffff))
    }

    /// The mark of this word. 0 is a reader that has not begun.
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// As a word.
    pub fn word(self) -> u64 {
        self.0
    }

    /// How many blocks after this one comes the one that the kernel calls `sequence`; `None` when
    /// it comes before.
    pub(crate) fn blocks_until(self, sequence: u64) -> Option<u32> {
        let blocks = low_half(sequence).wrapping_sub(low_half(self.0 >> 32));
        (blocks <= u32::MAX / 2).then_some(blocks)
    }

    /// How many frames of the block are among the `taken`.
    pub(crate) fn frames_of(self, taken: u64) -> u32 {
        low_half(taken).wrapping_sub(low_half(self.0))
    }
}

/// The lower 32 bits.
fn low_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_blocks_and_frames_go_round() {
        let mark = Mark::new(u64::from(u32::MAX), (7 << 32) | 0xffff_fff0);
        assert_eq!(mark.blocks_until(u64::from(u32::MAX)), Some(0));
        assert_eq!(mark.blocks_until(1 << 32), Some(1));
        assert_eq!(mark.blocks_until(u64::from(u32::MAX) - 1), None);
        assert_eq!(mark.frames_of((8 << 32) | 4), 20);
        assert_eq!(Mark::from_word(mark.word()), mark);
    }
}
