//! The steps of a reader on words that it shares with BPF programs and other readers. The steps are
//! generic, so that the model of loom (`model`) goes through the same code.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A word of 64 bits in memory that several processes share.
pub trait Word {
    /// Reads the word. What was written before the word's value was stored can be read afterwards.
    fn get(&self) -> u64;

    /// Stores a value, between two full barriers.
    fn exchange(&self, value: u64);

    /// Sets these bits, behind what was read and written before.
    fn add_bits(&self, bits: u64);

    /// Replaces `old` by `new`. Returns false, and changes nothing, if the word has another value.
    fn replace(&self, old: u64, new: u64) -> bool;
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn exchange(&self, value: u64) {
        // The swap alone does not keep the CPU from reading other words before the word is written.
        self.swap(value, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    fn add_bits(&self, bits: u64) {
        self.fetch_or(bits, Ordering::AcqRel);
    }

    fn replace(&self, old: u64, new: u64) -> bool {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        self.compare_exchange(old, new, order.0, order.1).is_ok()
    }
}

/// Gives back the blocks of a lane with the sequences before `sequence`. `left` is the lane's word
/// of that name, and `give` gives back the block with a sequence. Of several readers that call this
/// function at the same time, as after fork(2), only one gives back each block. `most` is the
/// number of blocks that a lane can have at once: if more seem to be left, the word is wrong, and
/// no block is given back.
pub(crate) fn leave<W: Word>(left: &W, sequence: u64, most: u64, mut give: impl FnMut(u64)) {
    loop {
        let next = left.get();
        match sequence.wrapping_sub(next) {
            0 => return,
            missing if missing <= most => {
                if left.replace(next, next.wrapping_add(1)) && next != 0 {
                    give(next);
                }
            }
            // Another reader is ahead, unless the word is wrong. A wrong word that stays would keep
            // all blocks of the lane.
            ahead if ahead.wrapping_neg() <= most => return,
            _ => _ = left.replace(next, sequence),
        }
    }
}

/// Value of a lane's wake-up word: nobody waits.
pub const NEVER: u64 = u64::MAX;

/// Makes the writer wake the reader when the lane's position is at least `after` further than now.
/// `wake_at` is the lane's wake-up word. Returns false if the position is that far already. In this
/// case it is possible that nothing wakes the reader.
///
/// The writer advances the position by a full barrier, and then reads `wake_at`. So at least one of
/// writer and reader sees what the other has written. The writer takes the value out before it
/// wakes the reader, so it wakes the reader once.
pub fn wake_after(wake_at: &impl Word, position: impl Fn() -> u64, after: u64) -> bool {
    let at = position().saturating_add(after);
    wake_at.exchange(at);
    position() < at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(left: &AtomicU64, sequence: u64) -> Vec<u64> {
        let mut all = Vec::new();
        leave(left, sequence, 4, |it| all.push(it));
        all
    }

    #[test]
    fn each_block_is_given_back_once() {
        let left = AtomicU64::new(0);
        assert_eq!(given(&left, 0), []);
        assert_eq!(given(&left, 3), [1, 2], "there is no block 0");
        assert_eq!(given(&left, 3), []);
        assert_eq!(given(&left, 2), [], "a reader that is behind");
        assert_eq!(given(&left, 4), [3]);
    }

    #[test]
    fn a_wrong_word_is_put_right() {
        for wrong in [100, u64::MAX, 1 << 40] {
            let left = AtomicU64::new(wrong);
            assert_eq!(given(&left, 10), [], "{wrong}");
            assert_eq!(given(&left, 12), [10, 11], "{wrong}");
        }
    }
}
