//! Arrays that can be values of an array of maps, and that processes map into their memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use fanpcap_bpf::MapKind;

use super::info::Shape;
use super::map::{self, BPF_F_MMAPABLE};
use crate::mapping::Mapping;

/// An array of entries, which follow one another in memory. The arrays in an array of maps may have
/// different numbers of entries (`BPF_F_INNER_MAP`, since Linux 5.10).
#[derive(Debug)]
pub struct SharedArray {
    fd: OwnedFd,
    entry_len: u32,
    entries: u32,
}

impl SharedArray {
    /// Creates an array of `entries` entries of `entry_len` zero bytes. The length must be a
    /// multiple of the page size.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`; `E2BIG` and `ENOMEM` when the array is too large; `EINVAL` before
    /// Linux 5.10, or for 0 entries.
    pub fn create(name: &str, entry_len: u32, entries: u32) -> io::Result<Self> {
        let fd = map::create(name, &shape(entry_len, entries))?;
        Ok(Self {
            fd,
            entry_len,
            entries,
        })
    }

    /// Opens the array behind `fd`, which may come from another process. Needs no capability.
    ///
    /// # Errors
    /// `InvalidData` when the map is not such an array, with a message that names both shapes;
    /// `EINVAL` when `fd` is not a BPF object.
    pub fn open(fd: OwnedFd) -> io::Result<Self> {
        let Shape {
            value_len: entry_len,
            entries,
            ..
        } = Shape::of(fd.as_fd())?;
        shape(entry_len, entries).verify(fd.as_fd())?;
        Ok(Self {
            fd,
            entry_len,
            entries,
        })
    }

    /// Writes `content` to the array's begin.
    ///
    /// # Errors
    /// `InvalidInput` if the array is shorter; the errors of mmap(2).
    pub fn fill(&self, content: &[u8]) -> io::Result<()> {
        if content.len() > self.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapping = self.map(0, content.len())?;
        let from = NonNull::from(content).cast();
        // SAFETY: the mapping has as many bytes as `content`, and is none of the process's memory.
        unsafe { mapping.base().copy_from_nonoverlapping(from, content.len()) };
        Ok(())
    }

    /// Bytes of an entry.
    pub fn entry_len(&self) -> u32 {
        self.entry_len
    }

    /// The number of entries.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes of all entries.
    pub fn len(&self) -> usize {
        self.entry_len as usize * self.entries as usize
    }

    /// Whether the array has no entry. The kernel creates no such array.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Maps `len` bytes from offset `at` on, a multiple of the page size, to read and to write. The
    /// mapping keeps the array alive. Needs no capability.
    ///
    /// # Errors
    /// The error of mmap(2): `EINVAL` beyond the array's last page.
    pub fn map(&self, at: usize, len: usize) -> io::Result<Mapping> {
        self.map_for(libc::PROT_READ | libc::PROT_WRITE, at, len)
    }

    /// Maps bytes as [`SharedArray::map`] does, but only to read them.
    ///
    /// # Errors
    /// As [`SharedArray::map`].
    pub fn map_to_read(&self, at: usize, len: usize) -> io::Result<Mapping> {
        self.map_for(libc::PROT_READ, at, len)
    }

    fn map_for(&self, protection: libc::c_int, at: usize, len: usize) -> io::Result<Mapping> {
        Mapping::new(len, protection, 0, self.fd.as_raw_fd(), at)
    }
}

impl AsFd for SharedArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const fn shape(entry_len: u32, entries: u32) -> Shape {
    let flags = BPF_F_MMAPABLE | BPF_F_INNER_MAP;
    Shape::new(MapKind::Array.number(), (4, entry_len), entries, flags)
}

/// Lets the array be in an array of maps together with arrays of other numbers of entries.
const BPF_F_INNER_MAP: u32 = 1 << 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::Map;

    const ENTRY: u32 = 64 << 10;

    /// The number at byte `at` of a mapping.
    fn number_at(mapping: &Mapping, at: usize) -> u64 {
        assert!(at + 8 <= mapping.len() && at % 8 == 0);
        // SAFETY: the assertion has checked the bounds.
        let from = unsafe { mapping.base().add(at) };
        // SAFETY: as above, and aligned, as a mapping begins at a page.
        unsafe { from.cast::<u64>().read_volatile() }
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_part_of_an_array_is_mapped() {
        let array = SharedArray::create("pool", ENTRY, 3).unwrap();
        let mut content = vec![0; ENTRY as usize + 16];
        content[ENTRY as usize + 8] = 7;
        array.fill(&content).unwrap();
        let second = array.map_to_read(ENTRY as usize, 2 * ENTRY as usize);
        let second = second.unwrap();
        assert_eq!((number_at(&second, 0), number_at(&second, 8)), (0, 7));
        assert_eq!(number_at(&second, 16), 0);
        let beyond = array.map(ENTRY as usize, array.len()).unwrap_err();
        assert_eq!(beyond.raw_os_error(), Some(libc::EINVAL));
        let longer = vec![0; array.len() + 1];
        assert!(array.fill(&longer).is_err());
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn what_others_send_is_opened_if_it_is_such_an_array() {
        let array = SharedArray::create("pool", ENTRY, 5).unwrap();
        let other = array.as_fd().try_clone_to_owned().unwrap();
        let other = SharedArray::open(other).unwrap();
        assert_eq!((other.entry_len(), other.entries()), (ENTRY, 5));
        assert_eq!(other.len(), 5 * ENTRY as usize);
        let plain = Map::array("pool", 5, ENTRY as usize).unwrap();
        let plain = plain.as_fd().try_clone_to_owned().unwrap();
        let error = SharedArray::open(plain).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
