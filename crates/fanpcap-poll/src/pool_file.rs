//! A pool in a memory file. The poller makes and seals the file before any other process gets it,
//! so no process can shorten the file: a store behind a file's end would kill the poller.

use fanpcap_linux::file::sealed;
use fanpcap_linux::memory::Memory;
use fanpcap_linux::packet::ring::Mapping;
use fanpcap_ring::pool::LaneWriter;
use fanpcap_ring::pool::layout::{BLOCKS_MAX, READER_ENTRY, WRITER_ENTRY, readers_at, words_len};
use fanpcap_ring::{PoolMemory, PoolWords};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The size of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// The number of lanes: one for each thread of the poller.
    pub lanes: u32,
    /// Bytes of a block, a power of two.
    pub block_len: u32,
    /// The number of blocks.
    pub blocks: u32,
}

/// The shortest and the longest block. The shortest has room for a packet of 64 KiB in its half,
/// and for the words of [`LANES_MAX`] lanes.
const BLOCK_LEN_MIN: u32 = 256 << 10;
const BLOCK_LEN_MAX: u32 = 4 << 20;

/// The most lanes: a poller has fewer threads.
const LANES_MAX: u32 = 64;

/// The longest file.
const LEN_MAX: u32 = 1 << 30;

const _: () = assert!(words_len(LANES_MAX) <= BLOCK_LEN_MIN);

impl PoolSize {
    /// Bytes of the file: the words, in the room of a block, and the blocks. `None` for a size that
    /// no pool has.
    pub fn file_len(self) -> Option<u32> {
        let fits = (1..=LANES_MAX).contains(&self.lanes)
            && self.block_len.is_power_of_two()
            && (BLOCK_LEN_MIN..=BLOCK_LEN_MAX).contains(&self.block_len)
            && (1..=BLOCKS_MAX).contains(&self.blocks);
        let len = self.block_len.checked_mul(self.blocks.checked_add(1)?)?;
        (fits && len <= LEN_MAX).then_some(len)
    }
}

/// A pool's file.
#[derive(Debug)]
pub struct PoolFile {
    memory: Memory,
    size: PoolSize,
}

impl PoolFile {
    /// Makes a new pool, and returns a writer for each lane. The kernel takes the memory when it is
    /// first written.
    ///
    /// # Errors
    /// `InvalidInput` for a size that no pool has; the errors of [`sealed::create_memory`].
    pub fn create(size: PoolSize) -> io::Result<(Self, Vec<LaneWriter>)> {
        let len = size.file_len().ok_or(io::ErrorKind::InvalidInput)?;
        let memory = sealed::create_memory(c"fanpcap_pool", len)?;
        let file = Self { memory, size };
        let (rows, readers) = (file.rows(), file.reader_rows()?);
        let rows = file.memory.part(0, rows)?;
        let writers = LaneWriter::begin(rows, readers, file.blocks()?, size.block_len as usize);
        Ok((file, writers.ok_or(io::ErrorKind::InvalidInput)?))
    }

    /// Opens a pool that a poller has made.
    ///
    /// # Errors
    /// `InvalidData` when the file does not have the size of the pool, or could be shortened.
    pub fn open(fd: OwnedFd, size: PoolSize) -> io::Result<Self> {
        let len = size.file_len().ok_or(io::ErrorKind::InvalidData)?;
        let memory = sealed::open_memory(fd, len)?;
        Ok(Self { memory, size })
    }

    /// Maps the pool for its reader.
    ///
    /// # Errors
    /// The errors of mmap(2); `InvalidData` when the words are not those of the pool.
    pub fn map(&self) -> io::Result<PoolMemory> {
        let memory = PoolMemory::new(self.map_words()?, self.blocks()?);
        memory.ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Maps the pool's words for its reader. The writer's rows are mapped to read them only.
    ///
    /// # Errors
    /// As [`PoolFile::map`].
    pub fn map_words(&self) -> io::Result<PoolWords> {
        let rows = self.memory.part_to_read(0, self.rows())?;
        let words = PoolWords::new(rows, self.reader_rows()?, self.size.block_len as usize);
        words.ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Bytes of the rows that the writer writes.
    fn rows(&self) -> usize {
        ((1 + self.size.lanes) * WRITER_ENTRY) as usize
    }

    fn reader_rows(&self) -> io::Result<Mapping> {
        let len = (1 + self.size.lanes) * READER_ENTRY;
        self.memory
            .part(readers_at(self.size.lanes) as usize, len as usize)
    }

    fn blocks(&self) -> io::Result<Mapping> {
        let first = self.size.block_len as usize;
        self.memory.part(first, self.memory.len() - first)
    }
}

impl AsFd for PoolFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_ring::pool::NewRecord;
    use fanpcap_ring::{Layout as _, Pool, PoolClocks};
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    use std::process::{self, Command};

    const SIZE: PoolSize = PoolSize {
        lanes: 3,
        block_len: BLOCK_LEN_MIN,
        blocks: 4,
    };

    fn reader(file: &PoolFile) -> Pool {
        let clocks = PoolClocks {
            now: || u64::MAX,
            offset: || 0,
        };
        Pool::new(file.map().unwrap(), 5, clocks)
    }

    fn record(stamp_ns: u64) -> NewRecord<'static> {
        NewRecord {
            bytes: &[7; 60],
            stamp_ns,
            ..NewRecord::default()
        }
    }

    fn count(pool: &mut Pool) -> usize {
        pool.open();
        let count = std::iter::from_fn(|| pool.next_frame().unwrap().map(drop)).count();
        pool.release();
        count
    }

    #[test]
    fn a_member_reads_what_the_poller_writes_and_can_not_change_the_length() {
        let (file, mut lanes) = PoolFile::create(SIZE).unwrap();
        let sent = || file.as_fd().try_clone_to_owned().unwrap();
        let opened = PoolFile::open(sent(), SIZE).unwrap();
        let mut pool = reader(&opened);
        for (stamp, lane) in (1..).zip(&mut lanes) {
            assert!(lane.put(&record(stamp), 60) && lane.publish());
        }
        assert_eq!(count(&mut pool), 3);
        let member = File::from(sent());
        assert!(member.set_len(0).is_err() && member.set_len(1 << 30).is_err());
        let other = PoolSize { blocks: 5, ..SIZE };
        assert!(PoolFile::open(sent(), other).is_err());
    }

    /// A seal against holes would forbid writes too.
    #[test]
    fn a_member_that_overwrites_the_file_or_makes_holes_in_it_stops_no_writer() {
        let (file, mut lanes) = PoolFile::create(SIZE).unwrap();
        let member = File::from(file.as_fd().try_clone_to_owned().unwrap());
        let len = SIZE.file_len().unwrap();
        let mut produced = 0;
        for byte in [0xff, 0, 0x5a] {
            member.write_all_at(&vec![byte; len as usize], 0).unwrap();
            let path = format!("/proc/{}/fd/{}", process::id(), member.as_raw_fd());
            for lane in &mut lanes {
                produced += u64::from(lane.put(&record(1), 60));
                lane.publish();
                let mut fallocate = Command::new("fallocate");
                let fallocate = fallocate.args(["--punch-hole", "--length", &len.to_string()]);
                assert!(fallocate.arg(&path).status().unwrap().success());
                produced += u64::from(lane.put(&record(1), 60));
            }
        }
        assert_eq!(produced, 18);
        let counted: u64 = lanes.iter().map(|lane| lane.counts().produced).sum();
        assert_eq!(counted, produced, "the poller believes its own counts");
    }

    #[test]
    fn sizes_that_no_pool_has_are_refused() {
        for wrong in [
            PoolSize { lanes: 0, ..SIZE },
            PoolSize { lanes: 65, ..SIZE },
            PoolSize { blocks: 0, ..SIZE },
            PoolSize {
                blocks: 257,
                ..SIZE
            },
            PoolSize {
                block_len: 0,
                ..SIZE
            },
            PoolSize {
                block_len: 300 << 10,
                ..SIZE
            },
            PoolSize {
                block_len: 128 << 10,
                ..SIZE
            },
            PoolSize {
                blocks: u32::MAX,
                ..SIZE
            },
            PoolSize {
                block_len: 4 << 20,
                blocks: 256,
                ..SIZE
            },
        ] {
            assert_eq!(wrong.file_len(), None, "{wrong:?}");
            assert!(PoolFile::create(wrong).is_err());
        }
        assert_eq!(SIZE.file_len(), Some(5 << 18));
    }
}
