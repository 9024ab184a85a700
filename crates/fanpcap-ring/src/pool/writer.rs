//! Writes a pool as a process, for members that this process does not trust.
//!
//! A member may write to all of its pool's memory at any time. So the writer has its positions, and
//! the words of free and used blocks, in its own memory, and only stores copies of the positions in
//! the pool. It reads two kinds of words in the pool: the blocks that readers have given back, of
//! which it takes only blocks that a lane has filled, and the positions at which it is to wake the
//! reader. A member that writes nonsense there overwrites its own packets, or is woken too often:
//! at most once for each [`LaneWriter::publish`].
//!
//! Each thread of the writer has a lane. The threads share only the words of the blocks.

use super::lane::{Header, LATEST};
use super::layout::{
    BLOCKS_MAX, HEAD, INDEX_BITS, LANES_MAX, SHORT, WORDS, WRITER_ENTRY, last_offset, readers_at,
    record_len, words, writer,
};
use super::memory::{PoolCounts, PoolMemory, PoolWords};
use super::words::{Supply, publish};
use crate::frame::{ADDRESSES_LEN, COPY, OUTGOING, TAGGED, VLAN_TAG_LEN, Vlan};
use fanpcap_linux::packet::ring::Mapping;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A packet for a pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    /// The frame's bytes.
    pub bytes: &'a [u8],
    /// The tag that the kernel or the device has removed from the frame. The writer puts it back.
    pub tag: Option<Vlan>,
    /// Bytes of the frame on the wire, without that tag.
    pub wire_len: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub stamp_ns: u64,
    /// The receive queue.
    pub queue: u16,
    /// Whether the host sends the packet.
    pub is_sent: bool,
    /// Whether another member also gets the packet.
    pub is_copy: bool,
    /// The number of the application's filter that has run on the frame; 0 if no filter has run.
    pub filter: u32,
}

/// One thread's side of a pool that it writes with the pool's other threads.
#[derive(Debug)]
pub struct LaneWriter {
    pool: Arc<Written>,
    lane: usize,
    /// The position of the next record.
    position: u64,
    /// The block of `position`. Not valid before the lane has its first block.
    block: NonNull<u8>,
    /// The index of that block while more records may be written to it.
    filled: Option<u32>,
    /// The position that the pool shows to readers.
    published: u64,
    counts: PoolCounts,
    /// Whether a packet found no free block since the last [`LaneWriter::publish`].
    has_dropped: bool,
}

// SAFETY: `block` points into memory that belongs to the process, not to a thread.
unsafe impl Send for LaneWriter {}

/// A pool, and the words of its blocks, in this process's own memory.
#[derive(Debug)]
struct Written {
    memory: PoolMemory,
    free: [AtomicU64; WORDS],
    used: [AtomicU64; WORDS],
}

impl Written {
    fn supply(&self, word: usize) -> Supply<'_, AtomicU64> {
        Supply {
            free: &self.free[word],
            used: &self.used[word],
            returned: self.memory.words.returned(word),
        }
    }

    /// Takes the lowest free block.
    fn take(&self) -> Option<(u32, NonNull<u8>)> {
        (0..).zip(0..WORDS).find_map(|(word, index)| {
            let number: u32 = self.supply(index).take()?;
            let index = 64 * word + number;
            Some((index, self.memory.block_at(index)?))
        })
    }
}

impl LaneWriter {
    /// Begins a pool in this memory, and returns a writer for each lane. `rows` and `reader_rows`
    /// are the rows that the writer and the readers write ([`super::layout`]), `blocks` are the
    /// blocks of `block_len` bytes. All three are mapped to read and to write, and no process can
    /// shorten the memory. `None` if the lengths make no pool.
    pub fn begin(
        rows: Mapping,
        reader_rows: Mapping,
        blocks: Mapping,
        block_len: usize,
    ) -> Option<Vec<Self>> {
        let lanes = u32::try_from(rows.len() / WRITER_ENTRY as usize).ok()?;
        let lanes = lanes.checked_sub(1).filter(|_| block_len > HEAD as usize)?;
        let count = u32::try_from(blocks.len() / block_len).ok()?;
        let fits = lanes <= LANES_MAX && count <= BLOCKS_MAX;
        let block = u32::try_from(block_len).ok().filter(|_| fits)?;
        let new = words(count, block, lanes);
        fill(&rows, &new[..(1 + lanes as usize) * WRITER_ENTRY as usize])?;
        fill(&reader_rows, &new[readers_at(lanes) as usize..])?;
        let words = PoolWords::new(rows, reader_rows, block_len)?;
        let mut free = new.chunks_exact(8).filter_map(|it| it.try_into().ok());
        let mut free = || AtomicU64::new(free.next().map_or(0, u64::from_ne_bytes));
        let pool = Arc::new(Written {
            memory: PoolMemory::new(words, blocks)?,
            free: std::array::from_fn(|_| free()),
            used: std::array::from_fn(|_| AtomicU64::new(0)),
        });
        Some(
            (0..pool.memory.words.lanes())
                .map(|lane| Self::new(&pool, lane))
                .collect(),
        )
    }

    fn new(pool: &Arc<Written>, lane: usize) -> Self {
        let position = pool.memory.words.position(lane);
        Self {
            pool: Arc::clone(pool),
            lane,
            position,
            block: NonNull::dangling(),
            filled: None,
            published: position,
            counts: PoolCounts::default(),
            has_dropped: false,
        }
    }

    /// Writes a record with at most `snaplen` bytes of the packet, and at most half a block of
    /// them. Readers see the record after [`LaneWriter::publish`]. Returns false, and counts the
    /// packet as dropped, if no block is free.
    #[inline]
    pub fn put(&mut self, record: &NewRecord<'_>, snaplen: u32) -> bool {
        let tag = record.tag.filter(|_| record.bytes.len() >= ADDRESSES_LEN);
        let tag_len = if tag.is_some() { VLAN_TAG_LEN } else { 0 };
        let whole = u32::try_from(record.bytes.len()).unwrap_or(u32::MAX);
        let captured = whole
            .saturating_add(tag_len)
            .min(snaplen)
            .min(self.longest());
        let Some(at) = self.room(captured) else {
            self.counts.dropped += 1;
            self.has_dropped = true;
            return false;
        };
        let mut flags = if record.is_copy { COPY } else { 0 };
        if record.is_sent {
            flags |= if tag.is_some() {
                OUTGOING | TAGGED
            } else {
                OUTGOING
            };
        }
        let header = Header {
            stamp: record.stamp_ns.min(LATEST).into(),
            captured: captured.into(),
            len: record.wire_len.saturating_add(tag_len).into(),
            queue: record.queue.into(),
            flags: flags.into(),
            filter: record.filter.into(),
        };
        self.write(at, header, record.bytes, tag);
        self.position += record_len(captured);
        self.counts.produced += 1;
        if self.offset() > self.last_offset(SHORT) {
            self.leave();
        }
        true
    }

    /// Shows the records to readers. Returns whether the caller must wake the reader.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.published == self.position && !self.has_dropped {
            return false;
        }
        self.published = self.position;
        let has_dropped = std::mem::take(&mut self.has_dropped);
        let (words, PoolCounts { produced, dropped }) = (&self.pool.memory.words, self.counts);
        let count = |at: i16| words.count(self.lane, at);
        count(writer::PRODUCED).store(produced, Ordering::Relaxed);
        count(writer::DROPPED).store(dropped, Ordering::Relaxed);
        let position = words.position_word(self.lane);
        publish(
            position,
            words.wake_at(self.lane),
            self.position,
            has_dropped,
        )
    }

    /// Shows readers how many packets the writer's source has dropped, so that no member got them.
    pub fn note_missed(&self, packets: u64) {
        let word = self.pool.memory.words.count(self.lane, writer::MISSED);
        word.store(packets, Ordering::Relaxed);
    }

    /// The lane's counts. They include records that are not published yet.
    pub fn counts(&self) -> PoolCounts {
        self.counts
    }

    /// The number of blocks that no lane has, those included that readers have given back.
    pub fn free_blocks(&self) -> u32 {
        let bits = (0..WORDS).map(|word| {
            let Supply {
                free,
                used,
                returned,
            } = self.pool.supply(word);
            let [free, used, returned] =
                [free, used, returned].map(|it| it.load(Ordering::Acquire));
            (free | (used & returned)).count_ones()
        });
        bits.sum()
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "at most 16 MiB")]
    fn block_len(&self) -> u32 {
        self.pool.memory.block_len() as u32
    }

    /// The most bytes of a packet in a record.
    #[inline(always)]
    fn longest(&self) -> u32 {
        self.block_len() / 2
    }

    #[inline(always)]
    fn last_offset(&self, captured: u32) -> u32 {
        last_offset(self.block_len(), captured)
    }

    /// The offset of the position in its block.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "below a block's length")]
    fn offset(&self) -> u32 {
        (self.position & (self.pool.memory.block_len() - 1)) as u32
    }

    /// The offset in the lane's block for a record with so many bytes of a packet. Takes another
    /// block if this one has no room. `None` if no block is free.
    #[inline(always)]
    fn room(&mut self, captured: u32) -> Option<usize> {
        // A block with no room for a short record is full, whatever the record's length: a reader
        // gives it back.
        let offset = self.offset();
        if offset > self.last_offset(captured.max(SHORT)) {
            self.enter()?;
            return Some(0);
        }
        Some(offset as usize)
    }

    /// Moves the lane to the lowest free block.
    #[cold]
    #[inline(never)]
    fn enter(&mut self) -> Option<()> {
        let (index, block) = self.pool.take()?;
        self.leave();
        let memory = &self.pool.memory;
        let sequence = memory.sequence(self.position) + 1;
        // The end of the block before, in units of 8 bytes.
        let number = index | ((self.offset() / 8) << INDEX_BITS);
        let entry = memory.words.table_entry(self.lane, sequence);
        entry.store(number, Ordering::Relaxed);
        self.position = memory.begin(sequence);
        self.block = block;
        self.filled = Some(index);
        Some(())
    }

    /// Lets readers give the lane's block back, in which no more records begin.
    #[cold]
    #[inline(never)]
    fn leave(&mut self) {
        if let Some(index) = self.filled.take() {
            self.pool.supply(index as usize / 64).fill(index);
        }
    }

    /// Writes a record at an offset of the block.
    #[inline(always)]
    fn write(&mut self, at: usize, mut header: Header, bytes: &[u8], tag: Option<Vlan>) {
        let captured = *header.captured.get_mut();
        debug_assert!(self.filled.is_some());
        debug_assert!(at as u64 + record_len(captured) <= self.pool.memory.block_len());
        let captured = captured as usize;
        // SAFETY: `room` has found that the record ends in the block, which is the lane's.
        let record = unsafe { self.block.add(at) };
        // SAFETY: as above, and aligned: records begin at multiples of 8 bytes. Of this process,
        // only this lane writes to the block, because it is in no word of blocks.
        unsafe { record.cast::<Header>().write(header) };
        // SAFETY: as above.
        let data = unsafe { record.add(HEAD as usize) };
        let Some(Vlan { tpid, tci }) = tag else {
            // SAFETY: the record has room for `captured` bytes.
            unsafe { copy(data, &bytes[..captured]) };
            return;
        };
        let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
        let (addresses, rest) = bytes.split_at(ADDRESSES_LEN);
        let mut done = 0;
        for part in [addresses, &[a, b, c, d], rest] {
            let len = part.len().min(captured - done);
            // SAFETY: the record has room for `captured` bytes.
            let to = unsafe { data.add(done) };
            // SAFETY: as above: `done + len` is at most `captured`.
            unsafe { copy(to, &part[..len]) };
            done += len;
        }
    }
}

/// Copies `bytes` to memory outside of Rust's.
///
/// # Safety
/// There is room for them.
#[inline(always)]
unsafe fn copy(to: NonNull<u8>, bytes: &[u8]) {
    let from = NonNull::from(bytes).cast();
    // SAFETY: the caller promises the room. A mapping is none of the memory that `bytes` is in.
    unsafe { to.copy_from_nonoverlapping(from, bytes.len()) };
}

/// Fills a mapping with these bytes. `None` if the mapping has another length.
fn fill(mapping: &Mapping, bytes: &[u8]) -> Option<()> {
    // SAFETY: the mapping has as many bytes.
    (mapping.len() == bytes.len()).then(|| unsafe { copy(mapping.base(), bytes) })
}
