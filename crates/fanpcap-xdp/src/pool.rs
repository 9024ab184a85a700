//! A member's pool on one device: its maps, which [`fanpcap_ring::pool`] describes, and the ring
//! buffer that wakes its reader.

use crate::layout::{POOL_LEN, PoolShape};
use crate::rows::SlotCounts;
use fanpcap_linux::bpf::{Entries, RingBuffer, RingMapping, SharedArray};
use fanpcap_linux::process::cpu;
use fanpcap_ring::pool::layout::{
    BLOCKS_MAX, READER_ENTRY, WRITER_ENTRY, reader_entries, writer_entries,
};
use fanpcap_ring::{PoolMemory, PoolWords};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// A member's pool.
#[derive(Debug)]
pub struct MemberPool {
    blocks: SharedArray,
    writer: SharedArray,
    reader: SharedArray,
    bell: RingBuffer,
    shape: PoolShape,
    /// The slot's counts at the time when the slot got this pool.
    before: OnceLock<SlotCounts>,
}

const MIB: u32 = 1 << 20;
/// The smallest and the largest size that pcap_set_buffer_size(3PCAP) can set.
const BYTES_MIN: u32 = 4 * MIB;
const BYTES_MAX: u32 = 256 * MIB;

impl MemberPool {
    /// Creates an empty pool. `bytes` is the size of all blocks, if the application has set a size.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `ENOMEM` when the kernel does not have enough memory.
    pub fn create(bytes: Option<u32>, shape: PoolShape) -> io::Result<Self> {
        let count = block_count(bytes, shape, cpu::online().unwrap_or(1));
        let (block_len, lanes) = (shape.block_len(), shape.lanes());
        let writer = writers(shape)?;
        writer.write(0, &writer_entries(count, block_len, lanes))?;
        // From now on only BPF programs write to it, so its readers need not doubt it.
        writer.freeze()?;
        let reader = readers(shape)?;
        reader.write(0, &reader_entries(block_len, lanes))?;
        Ok(Self {
            blocks: blocks(shape, count)?,
            writer,
            reader,
            bell: RingBuffer::smallest(NAME)?,
            shape,
            before: OnceLock::new(),
        })
    }

    /// Returns the bytes of all blocks that [`MemberPool::create`] would create.
    pub fn bytes(bytes: Option<u32>, shape: PoolShape) -> u64 {
        let count = block_count(bytes, shape, cpu::online().unwrap_or(1));
        u64::from(count) * u64::from(shape.block_len())
    }

    /// Opens a pool from another process's [`MemberPool::descriptors`]. Needs no capability.
    ///
    /// # Errors
    /// `InvalidData` if `fds` can't be the pool of a member of a group with pools of this shape.
    pub fn open(fds: Vec<OwnedFd>, shape: PoolShape) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let [blocks, writer, reader, bell] =
            <[OwnedFd; 4]>::try_from(fds).map_err(|_| invalid())?;
        let pool = Self {
            blocks: SharedArray::open(blocks, shape.block_len(), Entries::Any)?,
            writer: SharedArray::open(writer, WRITER_ENTRY, Entries::Same)?,
            reader: SharedArray::open(reader, READER_ENTRY, Entries::Same)?,
            bell: RingBuffer::open(bell)?,
            shape,
            before: OnceLock::new(),
        };
        let has_lanes = |map: &SharedArray| map.entries() == 1 + shape.lanes();
        match has_lanes(&pool.writer) && has_lanes(&pool.reader) {
            true => Ok(pool),
            false => Err(invalid()),
        }
    }

    /// The descriptors of the maps, for [`MemberPool::open`]: the blocks, the writer's and the
    /// reader's map, and the bell.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 4] {
        [
            self.blocks.as_fd(),
            self.writer.as_fd(),
            self.reader.as_fd(),
            self.bell.as_fd(),
        ]
    }

    /// Maps the pool.
    ///
    /// # Errors
    /// The errors of mmap(2); `InvalidData` if the maps do not make a pool.
    pub fn map(&self) -> io::Result<PoolMemory> {
        let (words, blocks) = (self.map_words()?, self.blocks.map()?);
        PoolMemory::new(words, blocks).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Maps the pool's words.
    ///
    /// # Errors
    /// As [`MemberPool::map`].
    pub fn map_words(&self) -> io::Result<PoolWords> {
        let maps = (self.writer.map_to_read()?, self.reader.map()?);
        let words = PoolWords::new(maps.0, maps.1, self.shape.block_len() as usize);
        words.ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Maps the bell.
    ///
    /// # Errors
    /// The errors of mmap(2).
    pub(crate) fn map_bell(&self) -> io::Result<RingMapping> {
        self.bell.map()
    }

    /// Bytes of all blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Always false, because a pool has at least one block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Stores the slot's counts at the time when the slot has just got this pool.
    pub(crate) fn note_before(&self, counts: SlotCounts) {
        let _ = self.before.set(counts);
    }

    /// The slot's counts at the time when the slot got this pool; `None` before that time.
    pub(crate) fn before(&self) -> Option<SlotCounts> {
        self.before.get().copied()
    }
}

/// The number of blocks of a pool, on a machine of which `online` CPUs are online. Each of these
/// CPUs can have a block while the reader reads another one of that CPU.
fn block_count(bytes: Option<u32>, shape: PoolShape, online: u32) -> u32 {
    let all = match bytes {
        Some(bytes) => bytes.clamp(BYTES_MIN, BYTES_MAX).next_power_of_two(),
        None => POOL_LEN,
    };
    let least = 2 * online.clamp(1, shape.lanes());
    (all / shape.block_len()).clamp(least, BLOCKS_MAX)
}

/// Creates the maps of a pool, which are also the examples for a group's arrays of such maps.
pub(crate) fn blocks(shape: PoolShape, count: u32) -> io::Result<SharedArray> {
    SharedArray::create(NAME, shape.block_len(), count, Entries::Any)
}

/// As [`blocks`].
pub(crate) fn writers(shape: PoolShape) -> io::Result<SharedArray> {
    SharedArray::create(NAME, WRITER_ENTRY, 1 + shape.lanes(), Entries::Same)
}

/// As [`blocks`].
pub(crate) fn readers(shape: PoolShape) -> io::Result<SharedArray> {
    SharedArray::create(NAME, READER_ENTRY, 1 + shape.lanes(), Entries::Same)
}

/// The maps' name in the kernel.
const NAME: &str = "fanpcap_pool";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_the_bytes_that_were_set_and_two_blocks_for_each_cpu() {
        let shape = |cpus| PoolShape::for_cpus(cpus, cpus).unwrap();
        let mib = |cpus, bytes| {
            block_count(bytes, shape(cpus), cpus) * (shape(cpus).block_len() >> 10) >> 10
        };
        assert_eq!(mib(1, None), 64);
        assert_eq!(mib(16, None), 64);
        assert_eq!(mib(128, None), 64);
        assert_eq!(mib(1, Some(1)), 4);
        assert_eq!(mib(2, Some(4 << 20)), 4);
        assert_eq!(mib(16, Some(1)), 32, "two blocks for each CPU");
        assert_eq!(mib(2, Some(100_000_000)), 128);
        assert_eq!(mib(2, Some(u32::MAX)), 256);
        let most = mib(128, Some(u32::MAX));
        assert_eq!(most, 64, "as many blocks as there may be");
    }
}
