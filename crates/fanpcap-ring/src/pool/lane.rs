//! A lane of a pool: the blocks that one CPU has filled, read one after the other.

use super::layout::{HEAD, record_len};
use super::memory::PoolMemory;
use super::words::{Lent, Word, leave};
use crate::frame::{Corrupt, corrupt};
use crate::prefetch::{AHEAD, prefetch_ahead};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The header of a record. Other processes may write to it at any time, so each field is read once.
#[repr(C)]
pub(super) struct Header {
    pub(super) stamp: AtomicU64,
    pub(super) captured: AtomicU32,
    pub(super) len: AtomicU32,
    pub(super) queue: AtomicU16,
    pub(super) flags: AtomicU16,
    pub(super) filter: AtomicU32,
}

const _: () = assert!(size_of::<Header>() == HEAD as usize);

/// Value of [`Lane::head`] if the snapshot has no record.
pub(super) const NONE: u64 = u64::MAX;

/// The latest stamp. Garbage in a record may look like a later one.
pub(super) const LATEST: u64 = NONE - 2;

#[derive(Debug)]
pub(super) struct Lane {
    /// The position of the next record.
    at: u64,
    /// The position at which the snapshot's records in this block end.
    end: u64,
    /// The block of `at`, unless `at` is `end`.
    block: NonNull<u8>,
    /// Stamps of records are at most this value.
    bound: u64,
    /// The next record's stamp when the reader last left the lane; [`NONE`] if there was no record.
    pub(super) head: u64,
    /// The position at which the snapshot ends.
    limit: u64,
    /// The writer's position when the snapshot was taken, and when the one before was taken.
    seen: u64,
    known: u64,
    /// The position of the snapshot's first record.
    begin: u64,
    number: usize,
}

// SAFETY: `block` points into memory that belongs to the process, not to a thread.
unsafe impl Send for Lane {}

#[derive(Clone, Copy)]
pub(super) struct Next {
    pub(super) stamp: u64,
    header: NonNull<Header>,
}

impl Next {
    #[inline(always)]
    pub(super) fn header(&self) -> &Header {
        // SAFETY: Lane::next has checked that the header is in the block, and it is aligned. The
        // block is mapped as long as the pool that has this record.
        unsafe { self.header.as_ref() }
    }

    /// The frame's bytes, which follow the header.
    #[inline(always)]
    pub(super) fn data(&self) -> NonNull<u8> {
        // SAFETY: as in `header`; the address is at most the block's end.
        unsafe { self.header.add(1) }.cast()
    }
}

impl Lane {
    pub(super) fn new(number: usize, memory: &PoolMemory) -> Self {
        let (position, read) = (memory.words.position(number), memory.read(number));
        let is_possible = is_possible(read, position, memory);
        let at = if is_possible { read } else { position };
        Self {
            at,
            end: at,
            block: NonNull::dangling(),
            bound: LATEST,
            head: NONE,
            limit: at,
            seen: 0,
            known: 0,
            begin: at,
            number,
        }
    }

    /// Continues at a position, of whose block nothing is known yet.
    fn jump(&mut self, position: u64) {
        self.at = position;
        self.end = position;
        self.limit = position;
    }

    /// Takes a snapshot of the writer's position.
    pub(super) fn look(&mut self, memory: &PoolMemory, gives: bool) {
        let read = self.unread_from(memory);
        if read != self.at {
            self.jump(read);
        }
        let position = memory.words.position(self.number);
        if !is_possible(self.at, position, memory) {
            // Some process has returned blocks that were not read yet.
            self.jump(position);
        }
        self.known = self.seen;
        self.seen = position;
        self.begin = self.at;
        self.limit = position;
        self.bound = LATEST;
        if gives {
            self.give(memory);
        }
        if self.at == position {
            // Most lanes of a machine with many CPUs.
            self.end = position;
            self.head = NONE;
            if memory.words.read(self.number).get() != position {
                // Another process, which is behind, has stored an older position. It would keep
                // this reader from waiting.
                self.pass(position, memory);
            }
            return;
        }
        self.enter(memory);
        self.head = self.find(memory, gives);
    }

    /// Ends the snapshot.
    pub(super) fn leave(&mut self) {
        // The next call of `look` finds the block again.
        self.end = self.at;
    }

    /// Leaves the snapshot's further records to the next snapshot if the next record came after
    /// `time`, when this snapshot began. A record that was in the snapshot before came earlier,
    /// whatever its stamp says.
    pub(super) fn postpone(&mut self, time: u64) {
        if self.head <= time || self.head == NONE {
            return;
        }
        if self.at < self.known {
            self.bound = time;
            self.head = time;
        } else {
            self.end = self.at;
            self.limit = self.at;
            self.head = NONE;
        }
    }

    /// The position at which the next snapshot starts: this reader's position, or that of another
    /// process that has read more records.
    fn unread_from(&self, memory: &PoolMemory) -> u64 {
        let read = memory.read(self.number);
        let position = memory.words.position(self.number);
        let is_ahead = read.wrapping_sub(self.at) <= position.wrapping_sub(self.at);
        if is_ahead { read } else { self.at }
    }

    /// Bytes up to the writer's position that are unread.
    pub(super) fn waiting(&self, memory: &PoolMemory) -> u64 {
        let position = memory.words.position(self.number);
        position.wrapping_sub(self.unread_from(memory))
    }

    /// Bytes of the snapshot that were read.
    pub(super) fn passed(&self) -> u64 {
        self.at.wrapping_sub(self.begin)
    }

    #[inline(always)]
    fn unread(&self) -> u64 {
        self.end.wrapping_sub(self.at)
    }

    /// The next record of the snapshot in this block.
    #[inline(always)]
    pub(super) fn next(&self, memory: &PoolMemory) -> Option<Next> {
        if self.unread() < u64::from(HEAD) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "below a block's length")]
        let offset = (self.at & (memory.block_len() - 1)) as usize;
        // SAFETY: the header lies between `at` and `end`. Where they differ, both are in the block:
        // `enter` sets both and the block, and `take` passes no record that leads beyond `end`.
        let header = unsafe { self.block.add(offset).cast::<Header>() };
        // SAFETY: as above, and aligned, as records begin at multiples of 8 bytes.
        let stamp = unsafe { header.as_ref() }.stamp.load(Relaxed);
        Some(Next {
            stamp: stamp.min(self.bound),
            header,
        })
    }

    /// Goes on to the lane's next block if this one is read. Returns the next record's stamp, or
    /// [`NONE`] if the snapshot has no record left.
    #[cold]
    #[inline(never)]
    pub(super) fn find(&mut self, memory: &PoolMemory, gives: bool) -> u64 {
        loop {
            if let Some(next) = self.next(memory) {
                return next.stamp;
            }
            let sequence = memory.sequence(self.at);
            if sequence >= memory.sequence(self.limit) {
                self.pass(self.limit, memory);
                self.end = self.limit;
                return NONE;
            }
            // If another process has read on, the next blocks may have other records now.
            let next = memory.begin(sequence + 1).max(self.unread_from(memory));
            self.limit = self.limit.max(next);
            self.pass(next, memory);
            if gives {
                self.give(memory);
            }
            self.enter(memory);
        }
    }

    /// Finds the block of the next record, and the end of the snapshot's records in it. A block
    /// that can't be found has no records.
    fn enter(&mut self, memory: &PoolMemory) {
        let sequence = memory.sequence(self.at);
        self.end = match sequence >= memory.sequence(self.limit) {
            true => self.limit,
            false => memory.end(self.number, sequence).max(self.at),
        };
        match memory.block(self.number, sequence) {
            Some((_, block)) => self.block = block,
            None => self.end = self.at,
        }
    }

    /// Gives back the blocks before that of the next record. At the end of a block, where no record
    /// begins, also gives back this block. So a lane whose CPU gets no more packets keeps no full
    /// block.
    fn give(&self, memory: &PoolMemory) {
        let (number, words) = (self.number, &memory.words);
        let lent = Lent {
            left: words.left(number),
            newest: || memory.sequence(words.position(number)) + 1,
            // Block 0, which does not exist, counts too.
            most: memory.count + 1,
            index: |sequence| memory.block(number, sequence).map(|(index, _)| index),
        };
        let sequence = memory.sequence(self.at) + u64::from(memory.is_end(self.at));
        leave(&lent, sequence, |index| words.give(index));
    }

    /// Takes the next record. Returns how many bytes of the frame it has.
    #[inline(always)]
    pub(super) fn take(&mut self, next: Next, memory: &PoolMemory) -> Result<u32, Corrupt> {
        let captured = next.header().captured.load(Relaxed);
        let stride = record_len(captured);
        if stride > self.unread() {
            return Err(self.refuse(captured, memory));
        }
        // Only within the snapshot: the BPF program may be writing to the memory after it.
        if AHEAD * stride < self.unread() {
            prefetch_ahead(next.header.as_ptr().cast(), stride);
        }
        self.pass(self.at + stride, memory);
        Ok(captured)
    }

    /// Advances to a position. Stores the position before the packet is delivered: if this process
    /// dies, the next reader does not deliver the packet again.
    #[inline(always)]
    fn pass(&mut self, position: u64, memory: &PoolMemory) {
        self.at = position;
        let read = memory.words.read(self.number);
        read.store(position, Relaxed);
    }

    /// Skips the rest of the block: after a record with a corrupt length, the next record can't be
    /// found.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, captured: u32, memory: &PoolMemory) -> Corrupt {
        let room = self.unread();
        self.pass(self.end, memory);
        corrupt(HEAD, captured, room)
    }
}

/// Whether the records between these two positions can still be in the pool.
fn is_possible(read: u64, position: u64, memory: &PoolMemory) -> bool {
    let [first, last] = [read, position].map(|it| memory.sequence(it));
    read <= position && last.wrapping_sub(first) <= memory.count
}
