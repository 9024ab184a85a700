//! A table in the process's own memory.

use crate::table::{Table, at};
use fanpcap_buckets::layout::{BUCKETS, SLOTS};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) buckets: Vec<AtomicU8>,
    ranks: Vec<AtomicU8>,
    rank_count: [AtomicU32; 1],
    words: Vec<AtomicU64>,
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        let bytes = |bytes: &[AtomicU8]| {
            let bytes = bytes.iter().map(|it| it.load(Ordering::Relaxed));
            bytes.map(AtomicU8::new).collect()
        };
        let words = self.words.iter().map(|it| it.load(Ordering::Relaxed));
        Self {
            buckets: bytes(&self.buckets),
            ranks: bytes(&self.ranks),
            rank_count: [AtomicU32::new(self.rank_count[0].load(Ordering::Relaxed))],
            words: words.map(AtomicU64::new).collect(),
        }
    }
}

impl Memory {
    pub(super) fn new() -> Self {
        let bytes = |count| (0..count).map(|_| AtomicU8::new(0)).collect();
        let memory = Self {
            buckets: bytes(BUCKETS),
            ranks: bytes(SLOTS),
            rank_count: [AtomicU32::new(0)],
            words: (0..at::END).map(|_| AtomicU64::new(0)).collect(),
        };
        memory.table().begin(0);
        memory
    }

    pub(super) fn table(&self) -> Table<'_> {
        Table {
            buckets: &self.buckets,
            ranks: &self.ranks,
            rank_count: &self.rank_count,
            words: &self.words,
        }
    }
}
