//! Renumbers slots: keeps copies of the former rows, buckets and ranks, and writes the new ones.
//! Only groups on packet sockets need this. Their members have no classes.

use super::{Part, ROW, Table, at, row_at};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::SLOTS;
use std::sync::atomic::{AtomicU8, Ordering};

impl Table<'_> {
    /// Copies the rows, buckets and ranks, and notes the new number of each slot.
    pub(crate) fn prepare_renumbering(&self, new: &[u8; SLOTS]) {
        for index in 0..SLOTS * ROW {
            self.set(at::OLD_ROWS + index, self.get(at::ROWS + index));
        }
        let bytes =
            |bytes: &[AtomicU8]| bytes.iter().map(|it| it.load(Ordering::Relaxed)).collect();
        self.set_bytes(at::OLD_BUCKETS, bytes(self.default.buckets));
        self.set_bytes(at::OLD_RANKS, bytes(self.default.ranks));
        self.set_bytes(at::NEW_SLOTS, new.to_vec());
    }

    /// Moves the rows to the slots' new numbers. The call can be repeated.
    pub(crate) fn renumber_rows(&self) {
        let new = self.bytes_at(at::NEW_SLOTS, SLOTS);
        for (slot, &new) in new.iter().enumerate() {
            let row: [u64; ROW] = self.words_at(at::OLD_ROWS + slot * ROW);
            self.set_words(row_at(Slot(new)), row);
        }
    }

    /// As [`Table::renumber_rows`], for buckets and ranks.
    pub(crate) fn renumber_buckets(&self) {
        let new = self.bytes_at(at::NEW_SLOTS, SLOTS);
        let Part { buckets, ranks, .. } = self.default;
        let olds = [(buckets, at::OLD_BUCKETS), (ranks, at::OLD_RANKS)];
        for (bytes, old) in olds {
            let old = self.bytes_at(old, bytes.len());
            for (byte, old) in bytes.iter().zip(old) {
                byte.store(new[usize::from(old)], Ordering::Release);
            }
        }
    }

    fn set_bytes(&self, at: usize, bytes: Vec<u8>) {
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.set(at + index, u64::from_le_bytes(word));
        }
    }

    fn bytes_at(&self, at: usize, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).map(|index| self.get(at + index));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(count);
        bytes
    }
}
