//! A pool in memory that the poller shares with a member. No member can shorten the memory, because
//! the poller would then be killed by its next store. Usually the memory is a BPF array: it has no
//! holes, and the kernel never moves it to swap. So no member can make a store of the poller wait.

use fanpcap_linux::bpf::{ObjectId, SharedArray};
use fanpcap_linux::file::sealed;
use fanpcap_linux::file::shared::{self, Word};
use fanpcap_linux::memory::Memory;
use fanpcap_linux::packet::ring::Mapping;
use fanpcap_linux::wait::Epoll;
use fanpcap_ring::pool::LaneWriter;
use fanpcap_ring::pool::layout::{
    BLOCKS_MAX, FIGURES, READER_ENTRY, WRITER_ENTRY, reader, readers_at, words_len,
};
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

/// The most lanes. A poller has a lane for each of its queues.
pub const LANES_MAX: u32 = 64;

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

/// The kind of memory that pools have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// A BPF array. The kernel takes all its memory at once. Needs `CAP_BPF`.
    #[default]
    Array,
    /// A memory file, for members that the poller trusts. The kernel takes memory when it is first
    /// written. While a member makes holes in the file, the kernel makes the poller's stores wait.
    File,
}

/// A pool's memory, by its descriptor.
#[derive(Debug)]
pub struct PoolFile {
    shared: Shared,
    size: PoolSize,
}

#[derive(Debug)]
enum Shared {
    Array(SharedArray),
    File(Memory),
}

impl Shared {
    fn create(kind: PoolKind, size: PoolSize) -> io::Result<Self> {
        let len = size.file_len().ok_or(io::ErrorKind::InvalidInput)?;
        match kind {
            PoolKind::Array => {
                // The first entry has the words, the others are the blocks.
                let array = SharedArray::create("fanpcap_pool", size.block_len, size.blocks + 1);
                array.map(Self::Array)
            }
            PoolKind::File => sealed::create_memory(c"fanpcap_pool", len).map(Self::File),
        }
    }

    fn open(fd: OwnedFd, size: PoolSize) -> io::Result<Self> {
        let len = size.file_len().ok_or(io::ErrorKind::InvalidData)?;
        if sealed::is_memory(fd.as_fd()) {
            return sealed::open_memory(fd, len).map(Self::File);
        }
        let array = SharedArray::open(fd)?;
        match (array.entry_len(), array.entries()) == (size.block_len, size.blocks + 1) {
            true => Ok(Self::Array(array)),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn part(&self, at: usize, len: usize) -> io::Result<Mapping> {
        match self {
            Self::Array(array) => array.map(at, len),
            Self::File(memory) => memory.part(at, len),
        }
    }

    fn part_to_read(&self, at: usize, len: usize) -> io::Result<Mapping> {
        match self {
            Self::Array(array) => array.map_to_read(at, len),
            Self::File(memory) => memory.part_to_read(at, len),
        }
    }
}

impl PoolFile {
    /// Makes a new pool, and returns a writer for each lane.
    ///
    /// # Errors
    /// `InvalidInput` for a size that no pool has; the errors of [`SharedArray::create`] and of
    /// [`sealed::create_memory`].
    pub fn create(kind: PoolKind, size: PoolSize) -> io::Result<(Self, Vec<LaneWriter>)> {
        let shared = Shared::create(kind, size)?;
        let file = Self { shared, size };
        let (rows, readers) = (file.rows(), file.reader_rows()?);
        let rows = file.shared.part(0, rows)?;
        let writers = LaneWriter::begin(rows, readers, file.blocks()?, size.block_len as usize);
        Ok((file, writers.ok_or(io::ErrorKind::InvalidInput)?))
    }

    /// Opens a pool that a poller has made, of either kind. Needs no capability.
    ///
    /// # Errors
    /// `InvalidData` when the memory does not have the size of the pool, or could be shortened;
    /// `EINVAL` when it is neither kind of memory.
    pub fn open(fd: OwnedFd, size: PoolSize) -> io::Result<Self> {
        let shared = Shared::open(fd, size)?;
        Ok(Self { shared, size })
    }

    /// Tells from now on whether any process has the pool. `None` for a memory file, of which
    /// nobody can tell this.
    ///
    /// To drop the returned value closes an epoll instance, which may wait for other processes: see
    /// [`Holders`].
    pub fn holders(&self) -> Option<Holders> {
        let Shared::Array(array) = &self.shared else {
            return None;
        };
        let id = ObjectId::of_map(array.as_fd()).ok()?;
        let watch = Epoll::new().ok();
        // An instance that watches nothing is never ready. It is not closed here.
        let _ = watch.as_ref().map(|it| it.add(array.as_fd(), false));
        Some(Holders { id, watch })
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
        let rows = self.shared.part_to_read(0, self.rows())?;
        let words = PoolWords::new(rows, self.reader_rows()?, self.size.block_len as usize);
        words.ok_or(io::ErrorKind::InvalidData.into())
    }

    /// The words in which a member tells the watchers of its poller, in this order: the packets
    /// that it has taken, those of them that its filter has rejected, and when its application last
    /// looked for packets.
    ///
    /// # Errors
    /// The errors of mmap(2).
    pub fn figures(&self) -> io::Result<[Word; FIGURES]> {
        let at = usize::from(reader::FIGURES.unsigned_abs());
        let words = shared::within(self.reader_rows()?, at);
        words.ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Bytes of the rows that the writer writes.
    fn rows(&self) -> usize {
        ((1 + self.size.lanes) * WRITER_ENTRY) as usize
    }

    fn reader_rows(&self) -> io::Result<Mapping> {
        let len = (1 + self.size.lanes) * READER_ENTRY;
        self.shared
            .part(readers_at(self.size.lanes) as usize, len as usize)
    }

    fn blocks(&self) -> io::Result<Mapping> {
        let first = self.size.block_len as usize;
        self.shared.part(first, first * self.size.blocks as usize)
    }
}

impl AsFd for PoolFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.shared {
            Shared::Array(array) => array.as_fd(),
            Shared::File(memory) => memory.as_fd(),
        }
    }
}

/// The processes that have a pool, by a descriptor or a mapping.
///
/// Older kernels close an epoll instance under a lock of the whole machine. Any process can have
/// this lock held as long as it wants (fs/eventpoll.c, `ep_free` and `eventpoll_release_file` with
/// `epmutex`). So a thread that must not wait must not drop this value.
#[derive(Debug)]
pub struct Holders {
    id: ObjectId,
    watch: Option<Epoll>,
}

impl Holders {
    /// Whether there are any, the calling process included. Without `CAP_SYS_ADMIN`, this function
    /// misses a process that has pinned the array in a file system of its own (`BPF_OBJ_PIN`).
    pub fn exist(&self) -> bool {
        self.id.exists().unwrap_or_else(|_| self.is_watched())
    }

    /// Whether the array's open file description exists, by which the poller and its members have
    /// the array. The kernel reports an error of such a file to all who watch it, as long as the
    /// file exists (kernel/bpf/syscall.c, `bpf_map_poll`), and to watch it does not keep it open.
    fn is_watched(&self) -> bool {
        let watch = self.watch.as_ref();
        watch.is_some_and(|it| it.is_ready().unwrap_or(false))
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
        let (file, mut lanes) = PoolFile::create(PoolKind::File, SIZE).unwrap();
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

    #[test]
    fn what_a_member_tells_about_its_packets_reaches_the_poller() {
        let (file, _lanes) = PoolFile::create(PoolKind::File, SIZE).unwrap();
        let opened = file.as_fd().try_clone_to_owned().unwrap();
        let figures = PoolFile::open(opened, SIZE).unwrap().figures().unwrap();
        for (value, word) in (1..).zip(&figures) {
            word.set(value);
        }
        let words = file.map_words().unwrap();
        assert_eq!(words.figures(), [1, 2, 3]);
        assert_eq!(words.unread(), 0, "nothing else has changed");
    }

    /// A seal against holes would forbid writes too.
    #[test]
    fn a_member_that_overwrites_the_file_or_makes_holes_in_it_stops_no_writer() {
        let (file, mut lanes) = PoolFile::create(PoolKind::File, SIZE).unwrap();
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
    #[ignore = "needs root: eBPF"]
    fn an_array_has_no_holes_and_is_told_from_other_memory() {
        let (file, mut lanes) = PoolFile::create(PoolKind::Array, SIZE).unwrap();
        let sent = || file.as_fd().try_clone_to_owned().unwrap();
        let mut pool = reader(&PoolFile::open(sent(), SIZE).unwrap());
        for (stamp, lane) in (1..).zip(&mut lanes) {
            assert!(lane.put(&record(stamp), 60) && lane.publish());
        }
        assert_eq!(count(&mut pool), 3);
        assert!(File::from(sent()).set_len(0).is_err());
        let path = format!("/proc/{}/fd/{}", process::id(), file.as_fd().as_raw_fd());
        let mut fallocate = Command::new("fallocate");
        let fallocate = fallocate.args(["--punch-hole", "--length", "4096", &path]);
        assert!(!fallocate.output().unwrap().status.success());
        let other = PoolSize { blocks: 5, ..SIZE };
        assert!(PoolFile::open(sent(), other).is_err());
        let null = File::open("/dev/null").unwrap();
        assert!(PoolFile::open(null.into(), SIZE).is_err());
        let holders = file.holders().unwrap();
        let all = |holders: &Holders| [holders.exist(), holders.is_watched()];
        assert_eq!(all(&holders), [true; 2]);
        let other = sent();
        drop((file, lanes, pool));
        assert_eq!(all(&holders), [true; 2], "a descriptor");
        let mapped = PoolFile::open(other, SIZE).unwrap().map().unwrap();
        assert_eq!(all(&holders), [true; 2], "a mapping");
        drop(mapped);
        assert_eq!(all(&holders), [false; 2]);
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
            assert!(PoolFile::create(PoolKind::File, wrong).is_err());
        }
        assert_eq!(SIZE.file_len(), Some(5 << 18));
    }
}
