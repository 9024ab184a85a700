//! The layout of a pool, which the writer and the readers share: one array of entries. Entry 0 has
//! the pool's *words*: first the rows that the writer writes, then the rows that readers write.
//! Each other entry is a block. The writer is a BPF program, or a process
//! ([`super::LaneWriter`]).
//!
//! A lane's *position* counts in one number: the lane's blocks, and bytes in the last of them. Its
//! upper part is the block's sequence, from 1 on; its lower part, below the block's length, is an
//! offset in the block. A lane that never had a block is near the end of block 0, which does not
//! exist. So the BPF program takes a first block for the same reason as any other: the block at
//! hand has no room.

/// The words of one kind: a bit for each block.
pub const WORDS: usize = 4;

/// The words in which a member tells the watchers of its poller what it has done with its packets.
/// No writer and no reader of the pool uses them.
pub const FIGURES: usize = 3;

/// The most blocks of a pool.
#[expect(clippy::cast_possible_truncation, reason = "a small number")]
pub const BLOCKS_MAX: u32 = 64 * WORDS as u32;

/// Bytes of a row that the writer writes. Row 0 has the words, row 1 + n has lane n.
pub const WRITER_ENTRY: u32 = writer::TABLE as u32 + 4 * BLOCKS_MAX;

/// Bytes of a row that readers write. Row 0 has the words, row 1 + n has lane n.
pub const READER_ENTRY: u32 = 128;

/// The offsets in an entry of the writer's map, which only the writer changes.
pub mod writer {
    /// [`super::WORDS`] of 64 bits, in entry 0: the blocks that are free. A writer that is a
    /// process has these words, and those at [`USED`], in its own memory instead.
    pub const FREE: i16 = 0;
    /// 64 bits, in row 0: the number of lanes. Only processes read this number.
    pub const LANES: i16 = 64;
    /// [`super::WORDS`] of 64 bits, in entry 0: the blocks that are not free.
    pub const USED: i16 = 128;
    /// 64 bits, of a lane: the position of the next record.
    pub const POSITION: i16 = 0;
    /// 32 bits, of a lane: the index of the block of that position.
    pub const BLOCK: i16 = 8;
    /// 64 bits, of a lane, for members: the records that a writer that is a process has written.
    pub const PRODUCED: i16 = 16;
    /// 64 bits, of a lane, for members: the packets for which such a writer found no free block.
    pub const DROPPED: i16 = 24;
    /// 64 bits, of a lane, for members: the packets that such a writer's source has dropped, for
    /// all members together, since it took the lane.
    pub const MISSED: i16 = 32;
    /// 32 bits for each block, of a lane: at the block's sequence modulo [`super::BLOCKS_MAX`], the
    /// block's index in the lower [`super::INDEX_BITS`] bits, and above them the end of the block
    /// with the sequence before, in units of 8 bytes.
    pub const TABLE: i16 = 128;
}

/// The offsets in an entry of the reader's map.
pub mod reader {
    /// [`super::WORDS`] of 64 bits, in entry 0: the blocks that readers have given back. The writer
    /// takes these bits out.
    pub const RETURNED: i16 = 0;
    /// [`super::FIGURES`] words of 64 bits, in entry 0: what a member tells its poller's watchers.
    pub const FIGURES: i16 = 64;
    /// 64 bits, of a lane: the position up to which records were taken.
    pub const READ: i16 = 0;
    /// 64 bits, of a lane: the sequence up to which readers have given blocks back.
    pub const LEFT: i16 = 8;
    /// 64 bits, of a lane: the position at which a writer that is a process wakes the reader;
    /// [`super::super::NEVER`] if the reader does not wait. In another cache line than the words
    /// that change with each packet. (BPF programs find this position in a map of their group.)
    pub const WAKE_AT: i16 = 64;
}

/// The offsets in a record.
pub mod record {
    /// 64 bits: nanoseconds of `CLOCK_MONOTONIC`.
    pub const STAMP: i16 = 0;
    /// 32 bits: bytes captured.
    pub const CAPLEN: i16 = 8;
    /// 32 bits: bytes on the wire.
    pub const LEN: i16 = 12;
    /// 16 bits: the receive queue.
    pub const QUEUE: i16 = 16;
    /// 16 bits of flags: [`COPY`], [`OUTGOING`], [`TAGGED`].
    pub const FLAGS: i16 = 18;
    /// 32 bits: the number of the filter that the frame has passed; 0 if no filter has run.
    pub const FILTER: i16 = 20;
    /// The captured bytes.
    pub const DATA: i16 = 24;
    pub use crate::frame::{COPY, OUTGOING, TAGGED};
}

/// Bits of a block's index in a table.
pub const INDEX_BITS: u32 = 8;

/// Bytes of a record before the frame's: time stamp, lengths, queue, flags and filter.
pub const HEAD: u32 = record::DATA as u32;

/// Applications may write behind a packet, so at least this many bytes follow the packet's.
pub const SPARE: u32 = 8;

/// Bytes of a record with so many bytes of a packet: a multiple of 8.
#[inline(always)]
pub(crate) fn record_len(captured: u32) -> u64 {
    (u64::from(HEAD + SPARE) + u64::from(captured) + 7) & !7
}

/// The most bytes of a packet in a short record.
pub const SHORT: u32 = 2047;

/// The greatest offset in a block at which a record with so many bytes of a packet may begin. The
/// record ends before the block's end: its end is an offset in the block too. A record with fewer
/// bytes than [`SHORT`] begins where one with [`SHORT`] bytes may begin.
pub const fn last_offset(block_len: u32, captured: u32) -> u32 {
    block_len - ((HEAD + SPARE + captured + 7) & !7) - 8
}

/// The offset in entry 0 of the rows that readers write. A multiple of all page sizes, so that a
/// process can map the rows before it to read them only.
pub const fn readers_at(lanes: u32) -> u32 {
    ((1 + lanes) * WRITER_ENTRY).next_multiple_of(PAGE_MAX)
}

/// Bytes of all rows.
pub const fn words_len(lanes: u32) -> u32 {
    readers_at(lanes) + (1 + lanes) * READER_ENTRY
}

/// The largest page size of Linux.
const PAGE_MAX: u32 = 64 << 10;

/// The rows of a new pool: all blocks are free, nothing was read, and the first record of a lane
/// wakes the reader. `block_len` is a power of two.
pub fn words(blocks: u32, block_len: u32, lanes: u32) -> Vec<u8> {
    let mut all = vec![0; words_len(lanes) as usize];
    let (writers, readers) = all.split_at_mut(readers_at(lanes) as usize);
    let number = &mut writers[writer::LANES as usize..][..8];
    number.copy_from_slice(&u64::from(lanes).to_ne_bytes());
    for (word, bytes) in (0..).zip(writers.chunks_exact_mut(8).take(WORDS)) {
        let left = blocks.saturating_sub(64 * word).min(64);
        let bits = u64::MAX.checked_shr(64 - left).unwrap_or(0);
        bytes.copy_from_slice(&bits.to_ne_bytes());
    }
    let writers = writers.chunks_exact_mut(WRITER_ENTRY as usize);
    let readers = readers.chunks_exact_mut(READER_ENTRY as usize);
    for (writer, reader) in writers.zip(readers).skip(1) {
        for row in [writer, reader] {
            row[..8].copy_from_slice(&fresh(block_len.into()).to_ne_bytes());
        }
    }
    all
}

/// The position of a lane that never had a block.
fn fresh(block_len: u64) -> u64 {
    block_len - 8
}

const _: () = assert!(BLOCKS_MAX == 1 << INDEX_BITS);
const _: () = assert!(reader::WAKE_AT.unsigned_abs() as u32 + 8 <= READER_ENTRY);
const _: () = assert!(8 * WORDS <= reader::FIGURES.unsigned_abs() as usize);
const _: () =
    assert!(reader::FIGURES.unsigned_abs() as usize + 8 * FIGURES <= READER_ENTRY as usize);
const _: () = assert!(writer::MISSED + 8 <= writer::TABLE);
const _: () = assert!(WRITER_ENTRY % 128 == 0 && WORDS * 8 <= writer::LANES as usize);

/// The shape of a pool that BPF programs write. All members of a group have pools of one shape, but
/// of any number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
    /// A power of two. A CPU writes into the lane with its number.
    lanes: u32,
    /// Bytes of a block, a power of two.
    block_len: u32,
}

/// The most lanes.
pub(super) const LANES_MAX: u32 = 256;

/// Bytes of the shortest and the longest block.
const BLOCK_LEN_MIN: u32 = 256 << 10;
const BLOCK_LEN_MAX: u32 = 1 << 20;

/// Bytes of a pool for which nobody has set a size.
pub const POOL_LEN: u32 = 64 << 20;

/// So many blocks for each CPU that is online fit into [`POOL_LEN`], or 256 in all: a CPU that no
/// longer receives packets may keep a block.
const BLOCKS_A_CPU: u32 = 8;

impl PoolShape {
    /// Returns the shape for a machine with `possible` CPUs, of which `online` are online. `None`
    /// for more possible CPUs than a pool has lanes, or if a pool can't have two blocks for each
    /// CPU that is online.
    pub fn for_cpus(possible: u32, online: u32) -> Option<Self> {
        let lanes = possible.max(1).next_power_of_two();
        let most = POOL_LEN / BLOCKS_A_CPU / online.clamp(1, LANES_MAX);
        let block_len = (most + 1).next_power_of_two() / 2;
        // Above 128 lanes, the shortest block has no room for the pool's words.
        let block_len = block_len.clamp(BLOCK_LEN_MIN, BLOCK_LEN_MAX);
        let block_len = block_len.max(words_len(lanes).next_power_of_two());
        Self::new(lanes, block_len).filter(|_| 2 * online <= BLOCKS_MAX)
    }

    /// Returns the shape with these numbers. `None` if no pool has this shape.
    pub fn new(lanes: u32, block_len: u32) -> Option<Self> {
        let fits = lanes.is_power_of_two()
            && lanes <= LANES_MAX
            && block_len.is_power_of_two()
            && block_len >= words_len(lanes)
            && (BLOCK_LEN_MIN..=BLOCK_LEN_MAX).contains(&block_len);
        fits.then_some(Self { lanes, block_len })
    }

    /// The number of lanes.
    pub fn lanes(self) -> u32 {
        self.lanes
    }

    /// Bytes of a block.
    pub fn block_len(self) -> u32 {
        self.block_len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_pool_has_all_its_blocks_and_no_others() {
        for blocks in [2, 63, 64, 65, 128, BLOCKS_MAX] {
            let all = words(blocks, 4096, 3);
            let word = |at: usize| u64::from_ne_bytes(all[at..at + 8].try_into().unwrap());
            let free: Vec<u64> = (0..WORDS).map(|index| word(8 * index)).collect();
            let found = free.iter().map(|word| word.count_ones()).sum::<u32>();
            assert_eq!(found, blocks);
            let whole = free.iter().take_while(|word| **word == u64::MAX).count();
            assert_eq!(u32::try_from(whole), Ok(blocks / 64), "the lowest blocks");
            let readers = readers_at(3) as usize;
            let rows = [(0, WRITER_ENTRY), (readers, READER_ENTRY)];
            for (first, row) in rows.map(|(first, len)| (first, len as usize)) {
                assert!((1..4).map(|lane| word(first + lane * row)).eq([4088; 3]));
            }
            assert_eq!(word(writer::LANES as usize), 3);
            assert_eq!(word(readers), 0, "nothing was given back");
            assert_eq!(all.len(), readers + 4 * READER_ENTRY as usize);
        }
    }

    #[test]
    fn a_record_has_room_behind_the_packet() {
        for (captured, len) in [
            (1, 40),
            (8, 40),
            (9, 48),
            (60, 96),
            (64, 96),
            (65_535, 65_568),
        ] {
            assert_eq!(record_len(captured), len, "{captured}");
        }
        assert_eq!(record_len(u32::MAX) % 8, 0);
    }

    /// All other CPUs keep a block with a record or two.
    #[test]
    fn one_cpu_has_room_for_100_ms_of_a_million_packets_a_second() {
        let record = 24 + 512 + 8;
        for online in 1..=40 {
            let block_len = PoolShape::for_cpus(online, online).unwrap().block_len();
            // The words take one block.
            let blocks = POOL_LEN / block_len - 1 - (online - 1);
            let records = blocks * (last_offset(block_len, SHORT) / record + 1);
            assert!(records >= 100_000, "{online} CPUs: {records}");
        }
    }

    #[test]
    fn the_shape_of_a_machine_is_one_that_pools_have() {
        for (possible, online, lanes, block_len) in [
            (1, 1, 1, 1 << 20),
            (2, 2, 2, 1 << 20),
            (8, 8, 8, 1 << 20),
            (9, 9, 16, 512 << 10),
            (16, 16, 16, 512 << 10),
            (240, 4, 256, 1 << 20),
            (17, 17, 32, 256 << 10),
            (64, 64, 64, 256 << 10),
            (128, 128, 128, 256 << 10),
            (129, 128, 256, 512 << 10),
        ] {
            let shape = PoolShape::for_cpus(possible, online).unwrap();
            assert_eq!((shape.lanes(), shape.block_len()), (lanes, block_len));
            assert_eq!(PoolShape::new(lanes, block_len), Some(shape));
        }
        assert_eq!(PoolShape::for_cpus(257, 2), None);
        assert_eq!(PoolShape::for_cpus(256, 129), None);
        let wrong = [
            (0, 1 << 20),
            (3, 1 << 20),
            (512, 1 << 20),
            (2, 1 << 21),
            (2, 3 << 17),
            (256, 256 << 10),
        ];
        for (lanes, block_len) in wrong {
            assert_eq!(PoolShape::new(lanes, block_len), None);
        }
    }
}
