//! Arrays that can be values of an array of maps, and that processes map into their memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use fanpcap_bpf::{MapKind, MapSpec};

use super::info::Shape;
use super::map::{self, BPF_F_MMAPABLE, Map};
use super::{Attributes, bpf, number};
use crate::mapping::Mapping;

/// How many entries the arrays in an array of maps have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// All have the same number. A BPF program finds an entry by a few instructions.
    Same,
    /// Each has any number (`BPF_F_INNER_MAP`, since Linux 5.10). A BPF program calls a function of
    /// the kernel to find an entry.
    Any,
}

/// An array of entries, which follow one another in memory.
#[derive(Debug)]
pub struct SharedArray {
    fd: OwnedFd,
    entry_len: u32,
    entries: u32,
}

impl SharedArray {
    /// Creates an array of `entries` entries of `entry_len` zero bytes. The length must be a
    /// multiple of eight. `others` are the numbers of entries of the other arrays in the array of
    /// maps.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`; `E2BIG` and `ENOMEM` when the array is too large; `EINVAL` before
    /// Linux 5.10, or for 0 entries.
    pub fn create(name: &str, entry_len: u32, entries: u32, others: Entries) -> io::Result<Self> {
        let fd = map::create(name, &shape(entry_len, entries, others))?;
        Ok(Self {
            fd,
            entry_len,
            entries,
        })
    }

    /// Opens the array behind `fd`, which may come from another process. The array may have any
    /// number of entries, whatever `others` says. Needs no capability.
    ///
    /// # Errors
    /// `InvalidData` when the map is not such an array with entries of this length, with a message
    /// that names both shapes; `EINVAL` when `fd` is not a BPF object.
    pub fn open(fd: OwnedFd, entry_len: u32, others: Entries) -> io::Result<Self> {
        let entries = Shape::of(fd.as_fd())?.entries;
        shape(entry_len, entries, others).verify(fd.as_fd())?;
        Ok(Self {
            fd,
            entry_len,
            entries,
        })
    }

    /// Writes whole entries from index `first` on.
    ///
    /// # Errors
    /// As [`Map::write`]; `EPERM` if the array is frozen.
    pub fn write(&self, first: u32, content: &[u8]) -> io::Result<()> {
        let spec = MapSpec::given_rows("", MapKind::Array, self.entry_len, self.entries);
        Map::behind_spec(self.fd.try_clone()?, &spec)?.write(first, content)
    }

    /// Freezes the array: from now on only BPF programs change it (`BPF_MAP_FREEZE`, since Linux
    /// 5.2). Nobody can undo this. Processes can still map the array to read it.
    ///
    /// # Errors
    /// `EBUSY` if the array is frozen already, or if a process has mapped it to write.
    pub fn freeze(&self) -> io::Result<()> {
        let mut attr = Freeze {
            map: number(&self.fd),
        };
        bpf(BPF_MAP_FREEZE, &mut attr).map(drop)
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

    /// Maps the array, to read and to write. The mapping keeps the array alive. Needs no
    /// capability.
    ///
    /// # Errors
    /// The error of mmap(2): `EPERM` if the array is frozen.
    pub fn map(&self) -> io::Result<Mapping> {
        Mapping::shared(self.fd.as_raw_fd(), self.len())
    }

    /// Maps the array to read it, also if the array is frozen.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn map_to_read(&self) -> io::Result<Mapping> {
        Mapping::new(self.len(), libc::PROT_READ, 0, self.fd.as_raw_fd(), 0)
    }
}

impl AsFd for SharedArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const fn shape(entry_len: u32, entries: u32, others: Entries) -> Shape {
    let flags = match others {
        Entries::Same => BPF_F_MMAPABLE,
        Entries::Any => BPF_F_MMAPABLE | BPF_F_INNER_MAP,
    };
    Shape::new(MapKind::Array.number(), (4, entry_len), entries, flags)
}

// SAFETY: the part of union bpf_attr for BPF_MAP_FREEZE, without addresses.
unsafe impl Attributes for Freeze {}

#[repr(C)]
struct Freeze {
    map: u32,
}

const BPF_MAP_FREEZE: libc::c_long = 22;

/// Lets the array be in an array of maps together with arrays of other numbers of entries.
const BPF_F_INNER_MAP: u32 = 1 << 12;

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_frozen_array_is_read_and_not_written() {
        let array = SharedArray::create("rows", 16, 3, Entries::Same).unwrap();
        let content: Vec<u8> = (0..32).collect();
        array.write(1, &content).unwrap();
        array.freeze().unwrap();
        assert!(
            array.write(0, &content).is_err(),
            "a write after the freeze"
        );
        let refused = array.map().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        let mapping = array.map_to_read().unwrap();
        assert_eq!(number_at(&mapping, 0), 0);
        assert_eq!(number_at(&mapping, 16), 0x0706_0504_0302_0100_u64.to_le());
        assert!(array.freeze().is_err(), "a second freeze");
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn what_others_send_is_opened_if_its_entries_fit() {
        let array = SharedArray::create("rows", 64, 5, Entries::Any).unwrap();
        let fd = || array.as_fd().try_clone_to_owned().unwrap();
        let other = SharedArray::open(fd(), 64, Entries::Any).unwrap();
        assert_eq!((other.entries(), other.len()), (5, 320));
        assert!(SharedArray::open(fd(), 64, Entries::Same).is_err());
        let error = SharedArray::open(fd(), 128, Entries::Any).unwrap_err();
        assert!(error.to_string().contains("values of 64 bytes"), "{error}");
        let busy = other.map().unwrap();
        assert_eq!(
            array.freeze().unwrap_err().raw_os_error(),
            Some(libc::EBUSY)
        );
        drop(busy);
        array.freeze().unwrap();
    }
}
