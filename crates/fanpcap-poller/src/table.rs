//! Reads a group's table: the slot of each bucket and of each rank. Another thread writes the table
//! at the same time, so each number is read once and checked.

use fanpcap_buckets::layout::{
    self, BUCKETS, CLASSES, EVERYBODY, HOLDERS, LOADS, OWNERS, RANK_COUNT, RANKS, SIZE,
    SIZE_WITH_CLASSES, SLOTS, STICKY_IDS,
};
use fanpcap_linux::memory::Memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// A group's table, for the threads that steer packets.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    memory: Arc<Memory>,
    has_classes: bool,
}

/// The members that share a packet's class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    owners: &'a [AtomicU8],
    ranks: &'a [AtomicU8],
}

impl Table {
    /// The table in this memory. `None` if the memory has neither the length of a table with
    /// classes nor that of a table without.
    pub(crate) fn new(memory: Arc<Memory>) -> Option<Self> {
        let has_classes = memory.len() == SIZE_WITH_CLASSES;
        (has_classes || memory.len() == SIZE).then_some(Self {
            memory,
            has_classes,
        })
    }

    /// The part of a class's members. `None` if the class has no member.
    #[inline]
    pub(crate) fn class(&self, class: u8) -> Option<Part<'_>> {
        let class = usize::from(class);
        let is_possible = class == 0 || (self.has_classes && class < CLASSES);
        self.part(class).filter(|_| is_possible)
    }

    /// The part of all members that get broadcast packets.
    pub(crate) fn everybody(&self) -> Option<Part<'_>> {
        self.part(if self.has_classes { EVERYBODY } else { 0 })
    }

    #[inline]
    fn part(&self, index: usize) -> Option<Part<'_>> {
        let begin = layout::part(index);
        let count: &[AtomicU32] = self.memory.view(begin + RANK_COUNT, 1)?;
        let count = count.first()?.load(Ordering::Relaxed) as usize;
        let part = self.memory.view::<AtomicU8>(begin, RANK_COUNT)?;
        let ranks = part.get(RANKS..RANKS + count.min(SLOTS))?;
        (count > 0).then_some(Part {
            owners: part.get(OWNERS..OWNERS + BUCKETS)?,
            ranks,
        })
    }

    /// The sticky id of a slot's member; 0 if no flows are remembered for it.
    pub(crate) fn sticky_id(&self, slot: u8) -> u64 {
        self.word(STICKY_IDS, slot)
    }

    /// The slot of the member with this sticky id, if it still has a slot.
    pub(crate) fn holder(&self, sticky_id: u64) -> Option<u8> {
        let [number, ..] = sticky_id.to_le_bytes();
        let holder = self.word(HOLDERS, number);
        let [slot, ..] = holder.to_le_bytes();
        (holder >> 8 == sticky_id >> 8).then_some(slot)
    }

    fn word(&self, offset: usize, index: u8) -> u64 {
        let words = self.memory.words(offset, SLOTS);
        let word = words.and_then(|words| words.get(usize::from(index)));
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Counts a packet of the hash's bucket, for members' loads.
    #[inline]
    pub(crate) fn count_load(&self, hash: u32) {
        let at = LOADS + 8 * layout::bucket(hash);
        if let Some([load]) = self.memory.view::<AtomicU32>(at, 1) {
            load.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> Part<'a> {
    /// The slot that owns the hash's bucket.
    #[inline]
    pub(crate) fn of_hash(self, hash: u32) -> Option<u8> {
        let owner = self.owners.get(layout::bucket(hash))?;
        Some(owner.load(Ordering::Relaxed))
    }

    /// The slot of the rank that a member's number selects.
    pub(crate) fn of_number(self, number: u32) -> Option<u8> {
        let rank = (number as usize).checked_rem(self.ranks.len())?;
        Some(self.ranks.get(rank)?.load(Ordering::Relaxed))
    }

    /// The slots of all ranks.
    pub(crate) fn slots(self) -> impl ExactSizeIterator<Item = u8> + use<'a> {
        self.ranks.iter().map(|slot| slot.load(Ordering::Relaxed))
    }
}
