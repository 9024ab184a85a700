//! Memory that processes share: a descriptor and its mapping. All accesses are atomic.

use crate::mapping::{Mapping, READ_AND_WRITE};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::slice_from_raw_parts;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Memory that is mapped for reading and writing. Other processes access the same memory at the
/// same time. So all processes must use the same access size for a byte of the memory.
#[derive(Debug)]
pub struct Memory {
    fd: OwnedFd,
    mapping: Mapping,
}

// SAFETY: all accesses to the mapping are atomic.
unsafe impl Sync for Memory {}

/// Atomic integers.
///
/// # Safety
/// Any bytes are a value of the type, and another thread or process may change the value behind a
/// reference to it.
pub unsafe trait Atomic {}
// SAFETY: `AtomicU8` is an atomic integer.
unsafe impl Atomic for AtomicU8 {}
// SAFETY: `AtomicU16` is an atomic integer.
unsafe impl Atomic for AtomicU16 {}
// SAFETY: `AtomicU32` is an atomic integer.
unsafe impl Atomic for AtomicU32 {}
// SAFETY: `AtomicU64` is an atomic integer.
unsafe impl Atomic for AtomicU64 {}

impl Memory {
    /// Maps the first `len` bytes behind `fd`. The file must never become shorter than `len`.
    pub(crate) fn map(fd: OwnedFd, len: u32) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mapping = Mapping::shared(fd.as_raw_fd(), len)?;
        Ok(Self { fd, mapping })
    }

    /// The mapping's length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Whether the mapping is empty. The kernel makes no such mapping.
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// Maps `len` bytes from byte `at` on once more, to read and to write. `at` is a multiple of
    /// the page size. The mapping outlives this value.
    ///
    /// # Errors
    /// `InvalidInput` when some of the bytes are outside the memory; the error of mmap(2).
    pub fn part(&self, at: usize, len: usize) -> io::Result<Mapping> {
        self.part_for(READ_AND_WRITE, at, len)
    }

    /// Maps bytes as [`Memory::part`] does, but only to read them.
    ///
    /// # Errors
    /// As [`Memory::part`].
    pub fn part_to_read(&self, at: usize, len: usize) -> io::Result<Mapping> {
        self.part_for(libc::PROT_READ, at, len)
    }

    fn part_for(&self, protection: c_int, at: usize, len: usize) -> io::Result<Mapping> {
        // An access to a mapping beyond the file's end would kill the process.
        match at.checked_add(len).is_some_and(|end| end <= self.len()) {
            true => Mapping::new(len, protection, 0, self.fd.as_raw_fd(), at),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// All bytes of the memory.
    #[inline]
    pub fn bytes(&self) -> &[AtomicU8] {
        self.view(0, self.len()).unwrap_or_default()
    }

    /// Returns `count` words of 64 bits, from byte `offset` on. `None` when some of the words are
    /// outside the memory, or the offset is not aligned.
    #[inline]
    pub fn words(&self, offset: usize, count: usize) -> Option<&[AtomicU64]> {
        self.view(offset, count)
    }

    /// Returns `count` integers, from byte `offset` on. `None` when some of the integers are
    /// outside the memory, or the offset is not aligned.
    #[inline]
    pub fn view<A: Atomic>(&self, offset: usize, count: usize) -> Option<&[A]> {
        let end = count.checked_mul(size_of::<A>())?.checked_add(offset)?;
        if end > self.len() || offset % align_of::<A>() != 0 {
            return None;
        }
        // SAFETY: the offset is inside the mapping, or at its end.
        let from = unsafe { self.mapping.base().as_ptr().add(offset) };
        // SAFETY: the mapping begins at a page, has at least `end` bytes, and lives as long as
        // `self`. Any bytes are a valid `A` (`Atomic`).
        Some(unsafe { &*slice_from_raw_parts(from.cast(), count) })
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
