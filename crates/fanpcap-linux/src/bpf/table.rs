//! An array map that processes share as memory (`BPF_F_MMAPABLE`, since Linux 5.5).

use crate::memory::Memory;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};

use fanpcap_bpf::{MapKind, TABLE_ROW};

use super::info::Shape;
use super::map::{self, BPF_F_MMAPABLE};

/// A map that a process reads and writes as mapped memory, in which the entries follow one another.
/// BPF programs access the same memory at the same time.
#[derive(Debug)]
pub struct Table(Memory);

impl Table {
    /// Creates a map of `len` zero bytes in entries of [`TABLE_ROW`] bytes, and maps its memory.
    /// BPF programs load whole entries.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`. `EINVAL` before Linux 5.5, or for length 0. `ENOMEM` and `E2BIG`
    /// when the map is too large.
    pub fn create(name: &str, len: u32) -> io::Result<Self> {
        Self::map(map::create(name, &shape(len))?, len)
    }

    /// Creates a map and maps its memory, as [`Table::create`] does, but with entries of `row_len`
    /// bytes, which must be a multiple of eight. BPF programs may access any part of an entry.
    ///
    /// # Errors
    /// As [`Table::create`].
    pub fn create_rows(name: &str, row_len: u32, rows: u32) -> io::Result<Self> {
        let fd = map::create(name, &shape_of(row_len, rows))?;
        Self::map(fd, row_len.saturating_mul(rows))
    }

    /// Maps the memory of a map that another process has made with [`Table::create_rows`]. The map
    /// may have any number of entries. Needs no capability.
    ///
    /// # Errors
    /// As [`Table::open`].
    pub fn open_rows(fd: OwnedFd, row_len: u32) -> io::Result<Self> {
        let rows = Shape::of(fd.as_fd())?.entries;
        shape_of(row_len, rows).verify(fd.as_fd())?;
        Self::map(fd, row_len.saturating_mul(rows))
    }

    /// Maps the memory of a map that another process has made with [`Table::create`]. Needs no
    /// capability.
    ///
    /// # Errors
    /// `InvalidData` when the map has another shape than [`Table::create`] gives for `len`, with a
    /// message that names both shapes. `EINVAL` when `fd` is not a BPF object. `EPERM` when the
    /// descriptor does not allow reading and writing, or the map is frozen.
    pub fn open(fd: OwnedFd, len: u32) -> io::Result<Self> {
        shape(len).verify(fd.as_fd())?;
        Self::map(fd, len)
    }

    fn map(fd: OwnedFd, len: u32) -> io::Result<Self> {
        Memory::map(fd, len).map(Self)
    }
}

impl Deref for Table {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.0
    }
}

impl From<Table> for Memory {
    fn from(table: Table) -> Self {
        table.0
    }
}

const fn shape(len: u32) -> Shape {
    shape_of(TABLE_ROW, len.div_ceil(TABLE_ROW))
}

const fn shape_of(row_len: u32, rows: u32) -> Shape {
    Shape::new(MapKind::Array.number(), (4, row_len), rows, BPF_F_MMAPABLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;

    const LEN: u32 = 65_536;

    #[test]
    #[ignore = "needs root: eBPF"]
    fn processes_without_privilege_share_the_memory() {
        let table = Table::create("table", LEN).unwrap();
        let sent = table.as_fd().try_clone_to_owned().unwrap();
        let nobody = move || {
            // SAFETY: takes plain numbers. The raw system call changes the user of this thread
            // alone.
            let rc = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
            assert_eq!(rc, 0);
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
            let created = Table::create("table", LEN).unwrap_err();
            assert_eq!(created.raw_os_error(), Some(libc::EPERM));
            let received = Table::open(sent, LEN).unwrap();
            received.bytes()[65_535].store(7, Relaxed);
            received.words(4608, 2).unwrap()[1].store(8, Relaxed);
            received
        };
        let received = std::thread::spawn(nobody).join().unwrap();
        assert_eq!(table.bytes()[65_535].load(Relaxed), 7);
        assert_eq!(table.words(4616, 1).unwrap()[0].load(Relaxed), 8);
        drop(table);
        assert_eq!(received.bytes()[65_535].load(Relaxed), 7);
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn views_stay_within_the_table() {
        let table = Table::create("table", 4608 + 4).unwrap();
        assert_eq!(table.bytes().len(), 4612);
        assert_eq!(table.view::<AtomicU32>(4608, 1).unwrap().len(), 1);
        assert!(
            table.view::<AtomicU32>(4608, 2).is_none(),
            "a view beyond the end"
        );
        assert!(
            table.view::<AtomicU32>(2, 1).is_none(),
            "a view that is not aligned"
        );
        assert!(table.words(0, 576).is_some() && table.words(0, 577).is_none());
        assert!(
            table.words(8, usize::MAX).is_none(),
            "a length that overflows"
        );
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn other_objects_are_refused_by_what_differs() {
        let refused = |fd: OwnedFd, part: &str| {
            let error = Table::open(fd, LEN).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        };
        let make = |shape: Shape| map::create("table", &shape).unwrap();
        let right = shape(LEN);
        refused(make(shape(LEN / 2)), "with 4096 values");
        refused(
            make(Shape {
                value_len: 16,
                ..right
            }),
            "values of 16 bytes",
        );
        refused(make(Shape { flags: 0, ..right }), "flags 0x0,");
        let kind = MapKind::Hash.number();
        let flags = 0;
        refused(
            make(Shape {
                kind,
                flags,
                ..right
            }),
            "of type 1 ",
        );
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = Table::open(file.into(), LEN).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
