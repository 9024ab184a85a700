//! Holds records back for a while and gives them out in the order of their stamps.
//!
//! Time is cut into slots of about a millisecond. A record goes into its slot; a slot is sorted
//! when it is due.

use crate::record::Record;

/// A slot is 2^20 nanoseconds.
const SLOT_BITS: u32 = 20;

/// Slots, 4.3 seconds of them.
const SLOTS: u64 = 4096;

/// Empty slots whose memory is kept for others.
const SPARE: usize = 64;

/// Nanoseconds that fit into the slots.
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
    /// The analyzer's number of the node.
    pub(super) node: u16,
    pub(super) link: u16,
    pub(super) marked: bool,
    pub(super) late: bool,
}

/// What a batch's records have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchFields {
    pub(super) revision: u64,
    pub(super) node: u16,
    pub(super) link: u16,
}

/// Where a record was put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Inserted {
    /// It came after its slot was given out.
    pub(super) late: bool,
    /// It is further ahead than there are slots.
    pub(super) ahead: bool,
    /// It is given out when [`Timeline::given`] reaches this number.
    pub(super) until: u64,
}

#[derive(Clone, Debug, Default)]
struct TimeSlot {
    waiting: Vec<WaitingRecord>,
    bytes: Vec<u8>,
}

/// Records by time.
#[derive(Debug)]
pub(super) struct Timeline {
    slots: Vec<TimeSlot>,
    /// Memory of slots that were given out: each time that a slot comes round it would keep as much
    /// as it ever held.
    spare: Vec<TimeSlot>,
    /// The first slot that was not given out.
    due: u64,
    /// Slots that were given out: grows whatever the time does.
    given: u64,
    bytes: usize,
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

    /// Bytes held, of packets and of what is known of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Slots that were given out.
    pub(super) fn given(&self) -> u64 {
        self.given
    }

    #[cfg(test)]
    pub(super) fn slots_with_memory(&self) -> usize {
        let with = |slot: &&TimeSlot| slot.waiting.capacity() > 0;
        self.slots.iter().chain(&self.spare).filter(with).count()
    }

    /// Records of before this time are late.
    pub(super) fn due(&self) -> u64 {
        self.due << SLOT_BITS
    }

    /// The first record is not yet held: time begins at `time`.
    pub(super) fn begin(&mut self, time: u64) {
        if self.due == 0 {
            self.due = time >> SLOT_BITS;
        }
    }

    /// Holds a record back. One that is late or too far ahead is kept all the same.
    pub(super) fn hold(&mut self, sender: BatchFields, record: &Record<'_>) -> Inserted {
        let number = record.stamp >> SLOT_BITS;
        let late = number < self.due;
        let last = self.due + SLOTS - 1;
        let at = number.clamp(self.due, last);
        let slot = &mut self.slots[place(at)];
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

    /// Gives out what is older than `time`. Times that went back by more than the slots hold begin
    /// a new count: everything is given out before.
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

    /// Gives out the oldest slot.
    pub(super) fn release_one(&mut self, give: &mut impl FnMut(&WaitingRecord, &[u8])) {
        let mut slot = std::mem::take(&mut self.slots[place(self.due)]);
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

/// The place of a slot among those there are.
fn place(number: u64) -> usize {
    usize::try_from(number % SLOTS).unwrap_or(0)
}
