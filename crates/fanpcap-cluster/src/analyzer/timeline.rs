//! Holds records back for a while and delivers them in the order of their stamps.
//!
//! Time is divided into slots of about a millisecond. Records are sorted when their slot is due.

use crate::record::Record;

const SLOT_BITS: u32 = 20;

/// The number of slots. All slots together cover 4.3 seconds.
const SLOTS: u64 = 4096;

/// How many delivered slots keep their memory for later use.
const SPARE: usize = 64;

/// The nanoseconds that all slots cover together.
pub(super) const SPAN: u64 = SLOTS << SLOT_BITS;

/// A record that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingRecord {
    pub(super) stamp: u64,
    pub(super) revision: u64,
    at: u32,
    pub(super) wire_length: u32,
    length: u16,
    pub(super) bucket: u16,
    /// The number that the analyzer has given the node.
    pub(super) node: u16,
    pub(super) link: u16,
    pub(super) marked: bool,
    pub(super) late: bool,
}

/// The fields that all records of a batch share.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchFields {
    pub(super) revision: u64,
    pub(super) node: u16,
    pub(super) link: u16,
}

/// The result of inserting a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Inserted {
    pub(super) late: bool,
    /// Whether the record's stamp is later than the last slot.
    pub(super) ahead: bool,
    /// The record is delivered when the number of delivered slots reaches this.
    pub(super) until: u64,
}

#[derive(Clone, Debug, Default)]
struct TimeSlot {
    waiting: Vec<WaitingRecord>,
    bytes: Vec<u8>,
}

/// The waiting records, by time.
#[derive(Debug)]
pub(super) struct Timeline {
    slots: Vec<TimeSlot>,
    /// Buffers of delivered slots. A buffer never shrinks, so no slot keeps its buffer.
    spare: Vec<TimeSlot>,
    /// The first slot that is not delivered yet.
    due: u64,
    /// The number of delivered slots. This number grows even if `due` becomes smaller.
    pub(super) given: u64,
    /// The bytes that the waiting packets and their fields take.
    pub(super) bytes: usize,
}

impl Timeline {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| TimeSlot::default()).collect(),
            spare: Vec::new(),
            due: 0,
            given: 0,
            bytes: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn slots_with_memory(&self) -> usize {
        let with = |slot: &&TimeSlot| slot.waiting.capacity() > 0;
        self.slots.iter().chain(&self.spare).filter(with).count()
    }

    /// The time at which the first undelivered slot begins. Records with earlier stamps are late.
    pub(super) fn due(&self) -> u64 {
        self.due << SLOT_BITS
    }

    /// Sets the time of the first slot. Call this before the first record is inserted.
    pub(super) fn begin(&mut self, time: u64) {
        if self.due == 0 {
            self.due = time >> SLOT_BITS;
        }
    }

    /// Inserts a record, also if it is late or too far ahead.
    pub(super) fn hold(&mut self, sender: BatchFields, record: &Record<'_>) -> Inserted {
        let number = record.stamp >> SLOT_BITS;
        let late = number < self.due;
        let last = self.due + SLOTS - 1;
        let at = number.clamp(self.due, last);
        let slot = &mut self.slots[index(at)];
        if slot.waiting.capacity() == 0 {
            *slot = self.spare.pop().unwrap_or_default();
        }
        let length = u16::try_from(record.captured.len()).unwrap_or(u16::MAX);
        slot.waiting.push(WaitingRecord {
            stamp: record.stamp,
            revision: sender.revision,
            at: u32::try_from(slot.bytes.len()).unwrap_or(u32::MAX),
            wire_length: record.wire_length,
            length,
            bucket: record.bucket,
            node: sender.node,
            link: sender.link,
            marked: record.marked,
            late,
        });
        slot.bytes.extend_from_slice(record.captured);
        self.bytes += size_of::<WaitingRecord>() + record.captured.len();
        Inserted {
            late,
            ahead: number > last,
            until: self.given + (at - self.due) + 1,
        }
    }

    /// Delivers the records that are older than `time`. If `time` is further from the first slot
    /// than all slots cover, delivers all records, and makes `time` the time of the first slot.
    pub(super) fn release(&mut self, time: u64, give: &mut impl FnMut(&WaitingRecord, &[u8])) {
        let until = time >> SLOT_BITS;
        if until + SLOTS < self.due || until > self.due + SLOTS {
            for _ in 0..SLOTS {
                self.release_one(give);
            }
            self.due = until;
        }
        while self.due < until {
            self.release_one(give);
        }
    }

    pub(super) fn release_one(&mut self, give: &mut impl FnMut(&WaitingRecord, &[u8])) {
        let mut slot = std::mem::take(&mut self.slots[index(self.due)]);
        self.due += 1;
        self.given += 1;
        if slot.waiting.is_empty() {
            return;
        }
        slot.waiting.sort_by_key(|waiting| waiting.stamp);
        for waiting in &slot.waiting {
            let at = waiting.at as usize;
            give(waiting, &slot.bytes[at..at + usize::from(waiting.length)]);
        }
        self.bytes -= slot.waiting.len() * size_of::<WaitingRecord>() + slot.bytes.len();
        slot.waiting.clear();
        slot.bytes.clear();
        if self.spare.len() < SPARE {
            self.spare.push(slot);
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number % SLOTS).unwrap_or(0)
}
