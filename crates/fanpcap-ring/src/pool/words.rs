//! The steps of a reader on words that it shares with the pool's writers and other readers, and the
//! steps of a writer that is a process. The steps are generic, so that the model of loom (`model`)
//! goes through the same code.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A word of 64 bits in memory that several processes share.
pub trait Word {
    /// Reads the word. What was written before the word's value was stored can be read afterwards.
    fn get(&self) -> u64;

    /// Stores a value, between two full barriers. Returns the former value.
    fn exchange(&self, value: u64) -> u64;

    /// Stores a value behind what was written before. A full barrier follows.
    fn publish(&self, value: u64);

    /// Sets these bits, behind what was read and written before.
    fn add_bits(&self, bits: u64);

    /// Clears these bits, behind what was read and written before. Returns the former value.
    fn clear_bits(&self, bits: u64) -> u64;

    /// Replaces `old` by `new`. Returns false, and changes nothing, if the word has another value.
    fn replace(&self, old: u64, new: u64) -> bool;
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn exchange(&self, value: u64) -> u64 {
        // The swap alone does not keep the CPU from reading other words before the word is written.
        let former = self.swap(value, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        former
    }

    #[inline(always)]
    fn publish(&self, value: u64) {
        self.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    fn add_bits(&self, bits: u64) {
        self.fetch_or(bits, Ordering::AcqRel);
    }

    fn clear_bits(&self, bits: u64) -> u64 {
        self.fetch_and(!bits, Ordering::AcqRel)
    }

    fn replace(&self, old: u64, new: u64) -> bool {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        self.compare_exchange(old, new, order.0, order.1).is_ok()
    }
}

/// The blocks of a lane, as [`leave`] gives them back.
pub(crate) struct Lent<'a, W, N, I> {
    /// The lane's word of the sequence up to which blocks were given back.
    pub(crate) left: &'a W,
    /// The greatest value that the word can have now: the sequence after that of the lane's
    /// position.
    pub(crate) newest: N,
    /// The number of blocks that a lane can have at once.
    pub(crate) most: u64,
    /// The index of the block with a sequence, if there is such a block.
    pub(crate) index: I,
}

/// Gives back the blocks of a lane with the sequences before `sequence`. `give` gives back the
/// block with an index. Of several readers that call this function, as after fork(2), only one
/// gives back each block, however far one of them is behind. If the word is wrong, because some
/// process has written to it, no block is given back, and the word is put right.
pub(crate) fn leave<W: Word, I>(
    lane: &Lent<'_, W, impl Fn() -> u64, impl Fn(u64) -> Option<I>>,
    sequence: u64,
    mut give: impl FnMut(I),
) {
    loop {
        let next = lane.left.get();
        // Read after the word: a reader that is ahead has seen the position that the word is for.
        if next > (lane.newest)().max(sequence) {
            lane.left.replace(next, sequence);
            continue;
        }
        if next >= sequence {
            return;
        }
        if sequence - next > lane.most {
            lane.left.replace(next, sequence);
            continue;
        }
        // Read before the word changes: later, the lane's table may have another block here.
        let index = (lane.index)(next);
        if lane.left.replace(next, next + 1) {
            index.into_iter().for_each(&mut give);
        }
    }
}

/// Value of a lane's wake-up word: nobody waits.
pub const NEVER: u64 = u64::MAX;

/// Value of a lane's wake-up word: only a packet without room wakes the reader.
pub const ONLY_DROPS: u64 = NEVER - 1;

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

/// Publishes a lane's records up to `position`. Returns whether the writer must wake the reader,
/// because the reader waits for this position, or waits and a packet had no room (`has_dropped`).
/// Takes the value of `wake_at` out, so the writer wakes the reader once.
#[inline(always)]
pub(crate) fn publish<W: Word>(
    lane_position: &W,
    wake_at: &W,
    position: u64,
    has_dropped: bool,
) -> bool {
    lane_position.publish(position);
    let at = wake_at.get();
    let is_due = at <= position || (has_dropped && at != NEVER);
    is_due && wake_at.exchange(NEVER) != NEVER
}

/// The blocks of one word of 64 blocks, as a writer that is a process sees them. Such a writer has
/// `free` and `used` in its own memory. A block is in neither word while a lane fills it, so
/// whatever readers write to `returned`, no block becomes free that a lane still fills.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supply<'a, W> {
    /// The blocks that no lane has.
    pub(crate) free: &'a W,
    /// The blocks that lanes have filled.
    pub(crate) used: &'a W,
    /// The blocks that readers have given back.
    pub(crate) returned: &'a W,
}

impl<W: Word> Supply<'_, W> {
    /// Takes back the blocks that readers have given back. Takes the lowest free block, and returns
    /// its number in the word. `None` if no block is free.
    pub(crate) fn take(&self) -> Option<u32> {
        if self.returned.get() != 0 {
            let returned = self.returned.exchange(0);
            let freed = self.used.clear_bits(returned) & returned;
            self.free.add_bits(freed);
        }
        loop {
            let free = self.free.get();
            let lowest = free & free.wrapping_neg();
            if lowest == 0 {
                return None;
            }
            // If the bit was cleared meanwhile, another lane has taken the block.
            if self.free.clear_bits(lowest) & lowest != 0 {
                return Some(lowest.trailing_zeros());
            }
        }
    }

    /// Lets readers give the block with this number in the word back. Called before the lane's
    /// position shows that the block is full, so before a reader can give the block back.
    pub(crate) fn fill(&self, number: u32) {
        self.used.add_bits(1 << (number % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST: u64 = 1000;

    fn given(left: &AtomicU64, sequence: u64) -> Vec<u64> {
        let mut all = Vec::new();
        let lane = Lent {
            left,
            newest: || NEWEST,
            most: 4,
            index: |it| (it != 0).then_some(it),
        };
        leave(&lane, sequence, |it| all.push(it));
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
    fn a_reader_that_is_far_behind_moves_nothing_back() {
        let left = AtomicU64::new(NEWEST);
        for behind in [1, 5, 900, NEWEST] {
            assert_eq!(given(&left, NEWEST - behind), [], "{behind}");
            assert_eq!(left.get(), NEWEST, "{behind}");
        }
    }

    /// After the word has changed, another reader may give back the blocks after it, and the BPF
    /// program may replace the table's entry.
    #[test]
    fn a_block_is_found_before_the_word_changes() {
        let left = AtomicU64::new(7);
        let mut all = Vec::new();
        let lane = Lent {
            left: &left,
            newest: || NEWEST,
            most: 4,
            index: |it| Some((it, left.get())),
        };
        leave(&lane, 9, |it| all.push(it));
        assert_eq!(all, [(7, 7), (8, 8)]);
    }

    #[test]
    fn a_wrong_word_is_put_right() {
        for wrong in [3, NEWEST + 1, u64::MAX, 1 << 40] {
            let left = AtomicU64::new(wrong);
            assert_eq!(given(&left, 10), [], "{wrong}");
            assert_eq!(given(&left, 12), [10, 11], "{wrong}");
        }
    }
}
