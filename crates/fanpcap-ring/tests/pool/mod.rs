//! Writes pools in memory of the test's own process, and writes garbage to them.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(unreachable_pub, reason = "a module of tests")]

pub mod hostile;

use fanpcap_linux::packet::ring::Mapping;
use fanpcap_ring::pool::layout::{
    BLOCKS_MAX, HEAD, READER_ENTRY, SHORT, SPARE, WORDS, WRITER_ENTRY, last_offset, reader, writer,
};
use fanpcap_ring::pool::{LaneWriter, NewRecord};
use fanpcap_ring::{Layout as _, LinkInfo, Pool, PoolClocks, PoolMemory, PoolWords, Stamp, Vlan};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes of a block, if a test sets no other length.
pub const BLOCK_LEN: usize = 4096;

/// The time of day less the monotonic clock, for these tests.
pub const OFFSET: u64 = 1_000_000_000_000;

pub const DEVICE: LinkInfo = LinkInfo {
    protocol: 0,
    ifindex: 5,
    hatype: 1,
    pkttype: 0,
};

/// No record comes after the end of time.
pub const CLOCKS: PoolClocks = PoolClocks {
    now: || u64::MAX,
    offset: || OFFSET,
};

/// A packet to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    pub stamp: u64,
    pub data: Vec<u8>,
    /// Bytes on the wire that were not captured.
    pub cut: u32,
    /// 1 for a frame that the host sends, and 2 more if its tag was beside it; 4 for a copy.
    pub flags: u16,
    pub filter: u32,
}

/// A packet with this stamp.
pub fn written(stamp: u64) -> Written {
    Written {
        stamp,
        data: (0..60).collect(),
        cut: 0,
        flags: 0,
        filter: 0,
    }
}

pub fn time_of(stamp: u64) -> Stamp {
    let time = stamp + OFFSET;
    Stamp {
        seconds: (time / 1_000_000_000) as u32,
        nanoseconds: (time % 1_000_000_000) as u32,
    }
}

pub fn times(stamps: &[u64]) -> Vec<Stamp> {
    stamps.iter().copied().map(time_of).collect()
}

/// Reads a snapshot to its end. Returns the stamps of its records.
pub fn drain(pool: &mut Pool) -> Vec<Stamp> {
    let mut stamps = Vec::new();
    if pool.open() {
        while let Some(frame) = pool.next_frame().unwrap() {
            stamps.push(frame.stamp());
        }
        assert!(pool.is_spent());
        pool.release();
    }
    stamps
}

/// A packet of which two fit into a block.
pub fn long(stamp: u64) -> Written {
    Written {
        data: vec![7; 1900],
        ..written(stamp)
    }
}

/// Bytes of a packet's record.
pub fn room_of(packet: &Written) -> u64 {
    (u64::from(HEAD + SPARE) + packet.data.len() as u64 + 7) & !7
}

/// The writer's side of a pool, and all of the pool's memory, as a hostile process has it. The
/// pool's memory must outlive it.
#[derive(Clone)]
pub struct Writer {
    raw: Raw,
    writers: Arc<Vec<Mutex<LaneWriter>>>,
}

/// A pool's memory.
#[derive(Clone)]
pub struct Raw {
    blocks: NonNull<u8>,
    writer: NonNull<u8>,
    reader: NonNull<u8>,
    block_len: usize,
    count: usize,
    lanes: usize,
}

// SAFETY: the memory belongs to the process, not to a thread, and its words are atomic.
unsafe impl Send for Raw {}

// SAFETY: as above. Blocks are written by volatile accesses, which stand for another process's.
unsafe impl Sync for Raw {}

type Maps = [Mapping; 3];

fn mappings(block_len: usize, count: usize, lanes: usize) -> Maps {
    let lens = [
        count * block_len,
        (1 + lanes) * WRITER_ENTRY as usize,
        (1 + lanes) * READER_ENTRY as usize,
    ];
    lens.map(|len| Mapping::anonymous(len).expect("memory"))
}

fn again(maps: &Maps) -> Maps {
    [0, 1, 2].map(|index: usize| maps[index].again().expect("memory"))
}

fn memory([blocks, writer, reader]: Maps, block_len: usize) -> PoolMemory {
    let words = PoolWords::new(writer, reader, block_len).expect("lanes");
    PoolMemory::new(words, blocks).expect("blocks")
}

/// A new pool: the writer's side and the reader's.
pub fn new_pool(count: usize, lanes: usize) -> (Writer, Pool) {
    let (writer, memory) = new_memory(BLOCK_LEN, count, lanes);
    (writer, Pool::new(memory, DEVICE.ifindex, CLOCKS))
}

/// A new pool of two readers, as after fork(2): the writer's side, the readers, and the words.
pub fn new_pool_of_two(count: usize, lanes: usize) -> (Writer, [Pool; 2], PoolWords) {
    let maps = mappings(BLOCK_LEN, count, lanes);
    let (others, [_, writer, reader]) = (again(&maps), again(&maps));
    let (made, first) = made(maps, BLOCK_LEN, lanes);
    let pools = [first, memory(others, BLOCK_LEN)].map(|it| Pool::new(it, DEVICE.ifindex, CLOCKS));
    let words = PoolWords::new(writer, reader, BLOCK_LEN).expect("lanes");
    (made, pools, words)
}

/// A new pool: the writer's side and the memory.
pub fn new_memory(block_len: usize, count: usize, lanes: usize) -> (Writer, PoolMemory) {
    made(mappings(block_len, count, lanes), block_len, lanes)
}

fn made(maps: Maps, block_len: usize, lanes: usize) -> (Writer, PoolMemory) {
    let raw = Raw::of(&maps, block_len, lanes);
    let [blocks, rows, reader_rows] = again(&maps);
    let writers = LaneWriter::begin(rows, reader_rows, blocks, block_len).expect("a pool");
    let writers = Arc::new(writers.into_iter().map(Mutex::new).collect());
    (Writer { raw, writers }, memory(maps, block_len))
}

impl std::ops::Deref for Writer {
    type Target = Raw;

    fn deref(&self) -> &Raw {
        &self.raw
    }
}

impl Writer {
    /// Writes a record into a lane. Returns false if no block is free. If the packet's flag 2 is
    /// set, the writer gets its tag beside the frame.
    pub fn arrive(&self, lane: usize, packet: &Written) -> bool {
        let (mut bytes, mut tag) = (packet.data.clone(), None);
        if packet.flags & 2 != 0 && bytes.len() >= 16 {
            let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let (tpid, tci) = (word(12), word(14));
            tag = Some(Vlan { tpid, tci });
            bytes.drain(12..16);
        }
        let record = NewRecord {
            bytes: &bytes,
            tag,
            wire_len: bytes.len() as u32 + packet.cut,
            stamp_ns: packet.stamp,
            queue: 3,
            is_sent: packet.flags & 1 != 0,
            is_copy: packet.flags & 4 != 0,
            filter: packet.filter,
        };
        let mut writer = self.lane(lane);
        let has_room = writer.put(&record, u32::MAX);
        writer.publish();
        has_room
    }

    /// One lane's writer.
    pub fn lane(&self, lane: usize) -> MutexGuard<'_, LaneWriter> {
        self.writers[lane].lock().expect("no panic")
    }

    /// The number of blocks that are free or were returned.
    pub fn free(&self) -> u32 {
        self.lane(0).free_blocks()
    }
}

impl Raw {
    fn of([blocks, writer, reader]: &Maps, block_len: usize, lanes: usize) -> Self {
        Self {
            blocks: blocks.base(),
            writer: writer.base(),
            reader: reader.base(),
            block_len,
            count: blocks.len() / block_len,
            lanes,
        }
    }

    fn word(&self, base: NonNull<u8>, at: usize) -> &AtomicU64 {
        // SAFETY: the callers stay within the entries.
        let word = unsafe { base.add(at) };
        // SAFETY: as above, and aligned.
        unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }
    }

    /// A word of the writer's map.
    pub fn writers(&self, entry: usize, at: i16) -> &AtomicU64 {
        assert!(entry <= self.lanes);
        let at = entry * WRITER_ENTRY as usize + usize::from(at.unsigned_abs());
        self.word(self.writer, at)
    }

    /// A word of the reader's map.
    pub fn readers(&self, entry: usize, at: i16) -> &AtomicU64 {
        assert!(entry <= self.lanes);
        let at = entry * READER_ENTRY as usize + usize::from(at.unsigned_abs());
        self.word(self.reader, at)
    }

    pub fn position(&self, lane: usize) -> &AtomicU64 {
        self.writers(1 + lane, writer::POSITION)
    }

    pub fn read(&self, lane: usize) -> &AtomicU64 {
        self.readers(1 + lane, reader::READ)
    }

    pub fn left(&self, lane: usize) -> &AtomicU64 {
        self.readers(1 + lane, reader::LEFT)
    }

    /// The number in a lane's table for a sequence.
    pub fn table(&self, lane: usize, sequence: u64) -> &AtomicU32 {
        assert!(lane < self.lanes);
        let index = (sequence % u64::from(BLOCKS_MAX)) as usize;
        let at = (1 + lane) * WRITER_ENTRY as usize + writer::TABLE as usize + 4 * index;
        // SAFETY: the table is in the lane's entry.
        let number = unsafe { self.writer.add(at) };
        // SAFETY: as above, and aligned.
        unsafe { AtomicU32::from_ptr(number.as_ptr().cast()) }
    }

    /// The number of blocks that were given back since the writer last took them.
    pub fn returned(&self) -> u32 {
        let words = (0..WORDS as i16).map(|word| self.readers(0, reader::RETURNED + 8 * word));
        words
            .map(|it| it.load(Ordering::Acquire).count_ones())
            .sum()
    }

    /// Whether the lane's block has no room for another record.
    pub fn is_full(&self, lane: usize) -> bool {
        let offset = self.position(lane).load(Ordering::Acquire) % self.block_len as u64;
        offset > u64::from(last_offset(self.block_len as u32, SHORT))
    }

    /// The offset in the blocks of the record at a lane's position.
    pub fn offset(&self, lane: usize, position: u64) -> usize {
        let sequence = position / self.block_len as u64;
        let number = self.table(lane, sequence).load(Ordering::Relaxed);
        let index = (number & (BLOCKS_MAX - 1)) as usize;
        index * self.block_len + (position % self.block_len as u64) as usize
    }

    /// Writes bytes into the blocks.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            let at = at.wrapping_add(index) % (self.count * self.block_len);
            // SAFETY: the byte is in the blocks.
            let target = unsafe { self.blocks.add(at) };
            // SAFETY: as above.
            unsafe { target.write_volatile(*byte) };
        }
    }

    /// A copy of the memory, as another process maps it.
    pub fn copy(&self) -> PoolMemory {
        self.twin().1
    }

    /// A copy of the memory, twice.
    pub fn twin(&self) -> (Self, PoolMemory) {
        let copies = mappings(self.block_len, self.count, self.lanes);
        let from = [self.blocks, self.writer, self.reader];
        for (from, to) in from.into_iter().zip(&copies) {
            // SAFETY: both mappings have the same length, and no other code writes to them
            // meanwhile.
            unsafe { to.base().copy_from_nonoverlapping(from, to.len()) };
        }
        let twin = Self::of(&copies, self.block_len, self.lanes);
        (twin, memory(copies, self.block_len))
    }
}
