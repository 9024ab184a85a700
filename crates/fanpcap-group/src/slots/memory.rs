//! A table in the process's own memory.

use crate::table::{Classes, Part, Table, at};
use fanpcap_buckets::layout::{BUCKETS, SIZE, SIZE_WITH_CLASSES, SLOTS};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Memory {
    buckets: Vec<AtomicU8>,
    ranks: Vec<AtomicU8>,
    rank_count: [AtomicU32; 1],
    /// The parts of classes, and their numbers of ranks, in separate memory.
    classes: Vec<AtomicU8>,
    numbers: Vec<AtomicU32>,
    pub(super) sticky_ids: Vec<AtomicU64>,
    pub(super) holders: Vec<AtomicU64>,
    pub(super) loads: Vec<AtomicU32>,
    words: Vec<AtomicU64>,
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        let bytes = |bytes: &[AtomicU8]| {
            let bytes = bytes.iter().map(|it| it.load(Ordering::Relaxed));
            bytes.map(AtomicU8::new).collect()
        };
        let numbers = |numbers: &[AtomicU32]| {
            let numbers = numbers.iter().map(|it| it.load(Ordering::Relaxed));
            numbers.map(AtomicU32::new).collect()
        };
        let words = |words: &[AtomicU64]| {
            let words = words.iter().map(|it| it.load(Ordering::Relaxed));
            words.map(AtomicU64::new).collect()
        };
        Self {
            buckets: bytes(&self.buckets),
            ranks: bytes(&self.ranks),
            rank_count: [AtomicU32::new(self.rank_count[0].load(Ordering::Relaxed))],
            classes: bytes(&self.classes),
            numbers: numbers(&self.numbers),
            sticky_ids: words(&self.sticky_ids),
            holders: words(&self.holders),
            loads: numbers(&self.loads),
            words: words(&self.words),
        }
    }
}

impl Memory {
    /// A table with parts for classes, or without.
    pub(super) fn new(has_classes: bool) -> Self {
        let beyond = if has_classes {
            SIZE_WITH_CLASSES - SIZE
        } else {
            0
        };
        let bytes = |count| (0..count).map(|_| AtomicU8::new(0)).collect();
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        let memory = Self {
            buckets: bytes(BUCKETS),
            ranks: bytes(SLOTS),
            rank_count: [AtomicU32::new(0)],
            classes: bytes(beyond),
            numbers: (0..beyond / 4).map(|_| AtomicU32::new(0)).collect(),
            sticky_ids: words(SLOTS),
            holders: words(SLOTS),
            loads: (0..2 * BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            words: words(at::END),
        };
        memory.table().begin(0);
        memory
    }

    pub(super) fn table(&self) -> Table<'_> {
        Table {
            default: Part {
                buckets: &self.buckets,
                ranks: &self.ranks,
                rank_count: &self.rank_count,
            },
            classes: Classes {
                bytes: &self.classes,
                numbers: &self.numbers,
            },
            sticky_ids: &self.sticky_ids,
            holders: &self.holders,
            loads: &self.loads,
            words: &self.words,
        }
    }
}
