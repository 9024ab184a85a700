//! The arrays of pools, which [`fanpcap_ring::pool`] describes, and a member's pool on one device.

use crate::rows::SlotCounts;
use fanpcap_linux::bpf::{ObjectArray, RingBuffer, SharedArray};
use fanpcap_linux::process::cpu;
use fanpcap_ring::pool::layout::{BLOCKS_MAX, READER_ENTRY, WRITER_ENTRY, readers_at, words};
use fanpcap_ring::pool::{POOL_LEN, PoolShape};
use fanpcap_ring::{PoolMemory, PoolWords};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// The array of a pool. Entry 0 has the words, the other entries are blocks.
#[derive(Debug)]
pub struct PoolArray {
    array: SharedArray,
    shape: PoolShape,
}

/// A member's pool.
pub struct MemberPool {
    pub(crate) array: PoolArray,
    pub(crate) bell: RingBuffer,
    /// The slot's counts at the time when the slot got this pool; empty before that time.
    pub(crate) before: OnceLock<SlotCounts>,
}

const MIB: u32 = 1 << 20;
/// The smallest and the largest size that pcap_set_buffer_size(3PCAP) can set.
const BYTES_MIN: u32 = 4 * MIB;
const BYTES_MAX: u32 = 256 * MIB;

impl PoolArray {
    /// Creates an empty pool. `bytes` is the size of all blocks, if somebody has set a size.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `ENOMEM` when the kernel does not have enough memory.
    pub fn create(bytes: Option<u32>, shape: PoolShape) -> io::Result<Self> {
        let entries = entry_count(bytes, shape, cpu::online().ok());
        let array = SharedArray::create(NAME, shape.block_len(), entries)?;
        array.fill(&words(entries - 1, shape.block_len(), shape.lanes()))?;
        Ok(Self { array, shape })
    }

    /// Opens a pool with so many lanes from another process's descriptor. Needs no capability.
    ///
    /// # Errors
    /// `InvalidData` if `fd` can't be the array of such a pool.
    pub fn open(fd: OwnedFd, lanes: u32) -> io::Result<Self> {
        let array = SharedArray::open(fd)?;
        let shape = PoolShape::new(lanes, array.entry_len());
        let shape = shape.ok_or(io::ErrorKind::InvalidData)?;
        let pool = Self { array, shape };
        // The words tell the number of lanes.
        pool.map_words()?;
        Ok(pool)
    }

    /// Creates an empty array of `count` pools of this shape, which BPF programs use.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`.
    pub fn places(shape: PoolShape, count: u32) -> io::Result<ObjectArray> {
        let example = SharedArray::create(NAME, shape.block_len(), 1)?;
        ObjectArray::of_arrays(NAME, &example, count)
    }

    /// Maps the pool.
    ///
    /// # Errors
    /// The errors of mmap(2); `InvalidData` if the array does not make a pool.
    pub fn map(&self) -> io::Result<PoolMemory> {
        let words = self.map_words()?;
        let first = self.shape.block_len() as usize;
        let blocks = self.array.map(first, self.size().saturating_sub(first))?;
        PoolMemory::new(words, blocks).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Maps the pool's words. The rows that BPF programs write are mapped to read them only.
    ///
    /// # Errors
    /// As [`PoolArray::map`].
    pub fn map_words(&self) -> io::Result<PoolWords> {
        let (lanes, block_len) = (self.shape.lanes(), self.shape.block_len());
        let rows = |row: u32| (row * (1 + lanes)) as usize;
        let writers = self.array.map_to_read(0, rows(WRITER_ENTRY))?;
        let readers_at = readers_at(lanes) as usize;
        let readers = self.array.map(readers_at, rows(READER_ENTRY))?;
        let words = PoolWords::new(writers, readers, block_len as usize);
        words.ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Bytes of the words and of all blocks.
    pub fn size(&self) -> usize {
        self.array.len()
    }
}

impl AsFd for PoolArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.array.as_fd()
    }
}

impl MemberPool {
    /// Creates an empty pool. `bytes` is the size of all blocks, if the application has set a size.
    ///
    /// # Errors
    /// As [`PoolArray::create`].
    pub fn create(bytes: Option<u32>, shape: PoolShape) -> io::Result<Self> {
        Ok(Self {
            array: PoolArray::create(bytes, shape)?,
            bell: RingBuffer::smallest(NAME)?,
            before: OnceLock::new(),
        })
    }

    /// Returns the bytes that the pool would take which [`MemberPool::create`] would create.
    pub fn bytes(bytes: Option<u32>, shape: PoolShape) -> u64 {
        let entries = entry_count(bytes, shape, cpu::online().ok());
        u64::from(entries) * u64::from(shape.block_len())
    }

    /// Opens a pool from another process's [`MemberPool::descriptors`]. Takes only the number of
    /// lanes from `shape`: each member of the group may write to the word that has the length of a
    /// block, but no process can change the length of the array's entries. Needs no capability.
    ///
    /// # Errors
    /// `InvalidData` if `fds` can't be the pool of a member of a group with pools of this shape.
    pub fn open(fds: Vec<OwnedFd>, shape: PoolShape) -> io::Result<Self> {
        let fds = <[OwnedFd; 2]>::try_from(fds);
        let [array, bell] = fds.map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Self {
            array: PoolArray::open(array, shape.lanes())?,
            bell: RingBuffer::open(bell)?,
            before: OnceLock::new(),
        })
    }

    /// The descriptors of the array and of the bell, for [`MemberPool::open`].
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.array.as_fd(), self.bell.as_fd()]
    }
}

/// The number of entries of a pool, on a machine of which `online` CPUs are online; `None` if this
/// number is not known. Each of these CPUs can have a block while the reader reads other blocks.
/// The number is a power of two, because without `CAP_PERFMON` the kernel takes the memory of so
/// many entries (kernel/bpf/arraymap.c, `array_map_alloc`).
fn entry_count(bytes: Option<u32>, shape: PoolShape, online: Option<u32>) -> u32 {
    let all = match bytes {
        Some(bytes) => bytes.clamp(BYTES_MIN, BYTES_MAX).next_power_of_two(),
        None => POOL_LEN,
    };
    let lanes = shape.lanes();
    let cpus = online.map_or(lanes, |online| online.clamp(1, lanes));
    let least = (2 * cpus).next_power_of_two().min(BLOCKS_MAX);
    (all / shape.block_len()).clamp(least, BLOCKS_MAX)
}

/// The maps' name in the kernel.
const NAME: &str = "fanpcap_pool";

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of a pool in MiB, on a machine with so many CPUs.
    fn mib(cpus: u32, bytes: Option<u32>) -> u32 {
        let shape = PoolShape::for_cpus(cpus, cpus).unwrap();
        (entry_count(bytes, shape, Some(cpus)) * (shape.block_len() >> 10)) >> 10
    }

    #[test]
    fn a_pool_has_the_bytes_that_were_set_and_two_blocks_for_each_cpu() {
        for cpus in [1, 16, 40, 128] {
            assert_eq!(mib(cpus, None), 64, "{cpus}");
        }
        assert_eq!(mib(1, Some(1)), 4);
        assert_eq!(mib(2, Some(4 << 20)), 4);
        assert_eq!(mib(2, Some(100_000_000)), 128);
        assert_eq!(mib(2, Some(u32::MAX)), 256);
    }

    /// docs/xdp.md and pcap.conf(5) have these bounds.
    #[test]
    fn the_bounds_of_a_pools_size_are_those_of_the_manual() {
        let bounds = |cpus| [1, u32::MAX].map(|bytes| mib(cpus, Some(bytes)));
        assert_eq!(bounds(2), [4, 256]);
        assert_eq!(
            [3, 4, 5, 8].map(bounds),
            [[8, 256], [8, 256], [16, 256], [16, 256]]
        );
        assert_eq!([9, 16].map(bounds), [[16, 128]; 2]);
        assert_eq!([17, 33, 128].map(bounds), [[16, 64], [32, 64], [64, 64]]);
        let many = PoolShape::for_cpus(129, 65).unwrap();
        let entries = [None, Some(1), Some(u32::MAX)].map(|it| entry_count(it, many, Some(65)));
        assert_eq!((many.block_len(), entries), (512 << 10, [256; 3]));
    }

    #[test]
    fn a_machine_that_does_not_tell_its_cpus_has_a_block_for_each_lane() {
        let shape = PoolShape::for_cpus(16, 1).unwrap();
        assert_eq!(entry_count(Some(1), shape, Some(1)), 4);
        assert_eq!(entry_count(Some(1), shape, None), 32);
        let most = PoolShape::for_cpus(256, 1).unwrap();
        assert_eq!(entry_count(Some(1), most, None), BLOCKS_MAX);
    }
}
