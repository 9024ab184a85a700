//! How far a reader has come in its ring. If the reader dies, another process continues from this
//! position.

/// How far a reader has come in its ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Frames taken since the ring was made.
    pub taken: u64,
    /// The block that is being read; between two blocks, the next one. Unused for a ring without
    /// blocks.
    pub mark: Mark,
}

/// The number of a block and the number of frames taken before the block, 32 bits each. Both are in
/// one word, so that a process that reads the mark during a write gets two numbers that belong
/// together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(u64);

impl Mark {
    /// The kernel's first block.
    pub(crate) const FIRST: Self = Self(1 << 32);

    /// The block with the kernel's number `sequence`, before which `taken` frames were taken.
    pub(crate) fn new(sequence: u64, taken: u64) -> Self {
        Self((sequence << 32) | (taken & 0xffff_ffff))
    }

    /// The mark in this word. The word 0 is the mark of a reader that has not begun to read.
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The mark as a word.
    pub fn word(self) -> u64 {
        self.0
    }

    /// The distance, in blocks, from the mark's block to the block with the kernel's number
    /// `sequence`. `None` if that block comes before the mark's block.
    pub(crate) fn blocks_until(self, sequence: u64) -> Option<u32> {
        let blocks = low_half(sequence).wrapping_sub(low_half(self.0 >> 32));
        (blocks <= u32::MAX / 2).then_some(blocks)
    }

    /// How many frames of the mark's block are among the first `taken` frames of the ring.
    pub(crate) fn frames_of(self, taken: u64) -> u32 {
        low_half(taken).wrapping_sub(low_half(self.0))
    }
}

/// The lower 32 bits of a word.
#[inline(always)]
pub(crate) fn low_half(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
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
