//! A pool's memory. No value in it is trusted: each index and each offset is checked before it
//! leads to an address.

use super::layout::{
    BLOCKS_MAX, FIGURES, INDEX_BITS, READER_ENTRY, SHORT, WORDS, WRITER_ENTRY, last_offset, reader,
    writer,
};
use super::words::{ONLY_DROPS, Word, wake_after};
use fanpcap_linux::packet::ring::Mapping;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The mapped words of a pool: the writer's, which may be mapped only to read, and the reader's.
#[derive(Debug)]
pub struct PoolWords {
    writer: Mapping,
    reader: Mapping,
    lanes: usize,
    /// The number of a position's bits that are an offset in a block.
    shift: u32,
}

// SAFETY: all accesses to the mappings are atomic.
unsafe impl Sync for PoolWords {}

impl PoolWords {
    /// The words in these mappings, of a pool with blocks of `block_len` bytes. `None` if the
    /// length is no power of two from 4 KiB to 16 MiB, if the mappings do not have the pool's
    /// number of lanes, or if they have no lane.
    pub fn new(writer: Mapping, reader: Mapping, block_len: usize) -> Option<Self> {
        let is_len = block_len.is_power_of_two() && (1 << 12..=1 << 24).contains(&block_len);
        let entries = writer.len() / WRITER_ENTRY as usize;
        let fit = writer.len() == entries * WRITER_ENTRY as usize
            && reader.len() == entries * READER_ENTRY as usize;
        let are_usable = |&lanes: &usize| is_len && fit && lanes > 0;
        let lanes = entries.checked_sub(1).filter(are_usable)?;
        let told = word(&writer, writer::LANES as usize).load(Ordering::Relaxed);
        (told == lanes as u64).then_some(Self {
            writer,
            reader,
            lanes,
            shift: block_len.trailing_zeros(),
        })
    }

    /// The number of lanes.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// The position of the lane's next record.
    #[inline]
    pub fn position(&self, lane: usize) -> u64 {
        let position = self.position_word(lane).load(Ordering::Relaxed);
        // Memory that is mapped to be read only has no other loads than relaxed ones.
        fence(Ordering::Acquire);
        position & ALIGNED
    }

    /// Whether the lane has ever had a block.
    pub fn is_used(&self, lane: usize) -> bool {
        self.position(lane) >> self.shift != 0
    }

    /// Whether some lane has records that no reader has taken.
    pub fn has_unread(&self) -> bool {
        (0..self.lanes).any(|lane| self.position(lane) != self.read(lane).get() & ALIGNED)
    }

    /// Unread bytes of all lanes, as far as their words make sense.
    pub fn unread(&self) -> u64 {
        let unread = |lane| self.position(lane).saturating_sub(self.read(lane).get());
        (0..self.lanes).fold(0, |sum, lane| unread(lane).saturating_add(sum))
    }

    /// A number that changes when a reader takes a record.
    pub fn taken(&self) -> u64 {
        let read = (0..self.lanes).map(|lane| self.read(lane).get());
        read.fold(0_u64, |sum, read| sum.rotate_left(7).wrapping_add(read))
    }

    /// A number that changes when a reader takes a record. `None` if no record is unread.
    pub fn progress(&self) -> Option<u64> {
        self.has_unread().then(|| self.taken())
    }

    pub(super) fn read(&self, lane: usize) -> &AtomicU64 {
        self.own(lane + 1, reader::READ)
    }

    pub(super) fn left(&self, lane: usize) -> &AtomicU64 {
        self.own(lane + 1, reader::LEFT)
    }

    /// Makes a writer that is a process wake the reader when the lane's position is at least
    /// `after` further than now. Returns false if the position is that far already. In this case it
    /// is possible that nothing wakes the reader.
    pub fn wake_after(&self, lane: usize, after: u64) -> bool {
        wake_after(self.wake_at(lane), || self.position(lane), after)
    }

    /// Makes only a packet without room wake the reader, by a writer that is a process.
    pub fn wake_for_drops(&self, lane: usize) {
        let wake_at = self.wake_at(lane);
        // Most rests follow one another: then the CPU's cache line need not change.
        if wake_at.get() != ONLY_DROPS {
            wake_at.store(ONLY_DROPS, Ordering::Release);
        }
    }

    /// The counts that a writer that is a process has published for the lane. The writer does not
    /// use them.
    pub fn counts(&self, lane: usize) -> PoolCounts {
        PoolCounts {
            produced: self.count(lane, writer::PRODUCED).load(Ordering::Relaxed),
            dropped: self.count(lane, writer::DROPPED).load(Ordering::Relaxed),
        }
    }

    /// What the member tells about its packets. The writer does not use these numbers.
    pub fn figures(&self) -> [u64; FIGURES] {
        std::array::from_fn(|index| {
            let at = reader::FIGURES + 8 * i16::try_from(index).unwrap_or(0);
            self.own(0, at).load(Ordering::Relaxed)
        })
    }

    /// The packets that the source of the lane's writer has dropped, as the writer has published
    /// them last ([`super::LaneWriter::note_missed`]).
    pub fn missed(&self, lane: usize) -> u64 {
        self.count(lane, writer::MISSED).load(Ordering::Relaxed)
    }

    /// Gives a block back to the writer.
    pub(super) fn give(&self, block: u32) {
        let (word, bit) = (block / 64, block % 64);
        if (word as usize) < WORDS {
            self.returned(word as usize).add_bits(1 << bit);
        }
    }

    /// A word of the blocks that readers have given back.
    pub(super) fn returned(&self, word: usize) -> &AtomicU64 {
        debug_assert!(word < WORDS);
        self.own(0, reader::RETURNED + 8 * i16::try_from(word).unwrap_or(0))
    }

    pub(super) fn wake_at(&self, lane: usize) -> &AtomicU64 {
        self.own(lane + 1, reader::WAKE_AT)
    }

    /// The word of the lane's position, for the writer.
    #[inline(always)]
    pub(super) fn position_word(&self, lane: usize) -> &AtomicU64 {
        self.count(lane, writer::POSITION)
    }

    /// A word of the lane at offset `at` of the writer's row.
    #[inline(always)]
    pub(super) fn count(&self, lane: usize, at: i16) -> &AtomicU64 {
        let row = (lane + 1) * WRITER_ENTRY as usize;
        word(&self.writer, row + usize::from(at.unsigned_abs()))
    }

    /// The number in the lane's table for a sequence.
    pub(super) fn table(&self, lane: usize, sequence: u64) -> u32 {
        self.table_entry(lane, sequence).load(Ordering::Relaxed)
    }

    /// The place in the lane's table for a sequence. A reader may have mapped it to read only.
    pub(super) fn table_entry(&self, lane: usize, sequence: u64) -> &AtomicU32 {
        #[expect(clippy::cast_possible_truncation, reason = "below BLOCKS_MAX")]
        let index = (sequence % u64::from(BLOCKS_MAX)) as usize;
        let at = (lane + 1) * WRITER_ENTRY as usize + writer::TABLE as usize + 4 * index;
        debug_assert!(at + 4 <= self.writer.len());
        // SAFETY: the lane is one of the pool's, and an entry has the whole table.
        let number = unsafe { self.writer.base().add(at) };
        // SAFETY: as above, and aligned. BPF programs too access the number as a whole.
        unsafe { AtomicU32::from_ptr(number.as_ptr().cast()) }
    }

    fn own(&self, entry: usize, at: i16) -> &AtomicU64 {
        let row = entry * READER_ENTRY as usize;
        word(&self.reader, row + usize::from(at.unsigned_abs()))
    }
}

/// Counts of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Records that were written.
    pub produced: u64,
    /// Packets for which no block was free.
    pub dropped: u64,
}

/// A pool's memory.
#[derive(Debug)]
pub struct PoolMemory {
    pub(super) words: PoolWords,
    blocks: Mapping,
    /// The number of blocks.
    pub(super) count: u64,
}

// SAFETY: the only functions that access the blocks give out addresses.
unsafe impl Sync for PoolMemory {}

impl PoolMemory {
    /// The memory of a pool with these words. `None` if `blocks` are not whole blocks, or are none,
    /// or are more than [`BLOCKS_MAX`].
    pub fn new(words: PoolWords, blocks: Mapping) -> Option<Self> {
        let count = blocks.len() >> words.shift;
        let fits = count << words.shift == blocks.len() && count <= BLOCKS_MAX as usize;
        Some(Self {
            words,
            count: Some(count as u64).filter(|&it| fits && it > 0)?,
            blocks,
        })
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn block_len(&self) -> u64 {
        1 << self.words.shift
    }

    pub(super) fn sequence(&self, position: u64) -> u64 {
        position >> self.words.shift
    }

    /// Whether no record begins at this position, because the rest of its block is too short.
    pub(super) fn is_end(&self, position: u64) -> bool {
        let block_len = 1 << self.words.shift;
        position & (self.block_len() - 1) > u64::from(last_offset(block_len, SHORT))
    }

    /// The position up to which readers have taken the lane's records. Of several readers, one that
    /// is behind stores its own position. But all records of blocks that were given back are taken.
    pub(super) fn read(&self, lane: usize) -> u64 {
        let read = self.words.read(lane).get() & ALIGNED;
        let left = self.words.left(lane).get();
        let position = self.words.position(lane);
        if left > self.sequence(position) + 1 {
            // Some process has stored nonsense.
            return read;
        }
        read.max(self.begin(left).min(position))
    }

    /// The position at which the block with this sequence begins.
    pub(super) fn begin(&self, sequence: u64) -> u64 {
        sequence << self.words.shift
    }

    /// The index and the address of the lane's block with this sequence. `None` if the pool has no
    /// such block.
    pub(super) fn block(&self, lane: usize, sequence: u64) -> Option<(u32, NonNull<u8>)> {
        let index = self.words.table(lane, sequence) & (BLOCKS_MAX - 1);
        let index = Some(index).filter(|_| sequence != 0)?;
        Some((index, self.block_at(index)?))
    }

    /// The address of the block with this index, if there is such a block.
    pub(super) fn block_at(&self, index: u32) -> Option<NonNull<u8>> {
        let offset = (index as usize) << self.words.shift;
        // SAFETY: the index is that of one of the blocks.
        (u64::from(index) < self.count).then(|| unsafe { self.blocks.base().add(offset) })
    }

    /// The position at which the lane's block with this sequence ends. A later block of the lane
    /// has begun.
    pub(super) fn end(&self, lane: usize, sequence: u64) -> u64 {
        let units = self.words.table(lane, sequence.wrapping_add(1)) >> INDEX_BITS;
        let offset = (u64::from(units) * 8).min(self.block_len());
        self.begin(sequence) + offset
    }
}

/// Records begin at multiples of 8 bytes.
const ALIGNED: u64 = !7;

#[inline(always)]
fn word(mapping: &Mapping, at: usize) -> &AtomicU64 {
    debug_assert!(at + 8 <= mapping.len() && at % 8 == 0);
    // SAFETY: the callers add an offset within an entry to the begin of one of the entries.
    let word = unsafe { mapping.base().add(at) };
    // SAFETY: as above, and aligned. All processes and BPF programs access the word atomically.
    // Words that are mapped to be read only are only loaded, and relaxed.
    unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }
}
