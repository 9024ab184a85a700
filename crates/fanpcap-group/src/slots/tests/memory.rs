//! A table in the process's own memory.

use crate::table::{Table, at};
use fanpcap_buckets::layout::{BUCKETS, SLOTS};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) buckets: Vec<AtomicU8>,
    ranks: Vec<AtomicU8>,
    rank_count: [AtomicU32; 1],
    pub(super) seats: Vec<AtomicU64>,
    pub(super) holders: Vec<AtomicU64>,
    words: Vec<AtomicU64>,
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        let bytes = |bytes: &[AtomicU8]| {
            let bytes = bytes.iter().map(|it| it.load(Ordering::Relaxed));
            bytes.map(AtomicU8::new).collect()
        };
        let words = |words: &[AtomicU64]| {
            let words = words.iter().map(|it| it.load(Ordering::Relaxed));
            words.map(AtomicU64::new).collect()
        };
        Self {
            buckets: bytes(&self.buckets),
            ranks: bytes(&self.ranks),
            rank_count: [AtomicU32::new(self.rank_count[0].load(Ordering::Relaxed))],
            seats: words(&self.seats),
            holders: words(&self.holders),
            words: words(&self.words),
        }
    }
}

impl Memory {
    pub(super) fn new() -> Self {
        let bytes = |count| (0..count).map(|_| AtomicU8::new(0)).collect();
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        let memory = Self {
            buckets: bytes(BUCKETS),
            ranks: bytes(SLOTS),
            rank_count: [AtomicU32::new(0)],
            seats: words(SLOTS),
            holders: words(SLOTS),
            words: words(at::END),
        };
        memory.table().begin(0);
        memory
    }

    pub(super) fn table(&self) -> Table<'_> {
        Table {
            buckets: &self.buckets,
            ranks: &self.ranks,
            rank_count: &self.rank_count,
            seats: &self.seats,
            holders: &self.holders,
            words: &self.words,
        }
    }
}
