//! Memory mappings (mmap(2)).

use std::ffi::c_int;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};

/// A mapping of memory that several processes, or a process and the kernel, share. The memory is
/// unmapped when this value is dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is unmapped once.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps new memory, to which the kernel does not write: for tests, and for other producers.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn anonymous(len: usize) -> io::Result<Self> {
        Self::new(len, READ_AND_WRITE, libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Maps the same memory once more, as another process would: for tests.
    ///
    /// # Errors
    /// The error of mremap(2).
    pub fn again(&self) -> io::Result<Self> {
        let (base, flags) = (self.base.as_ptr().cast(), libc::MREMAP_MAYMOVE);
        // SAFETY: with an old length of 0, the kernel leaves this mapping as it is. It chooses a
        // free address for the new mapping.
        let base = unsafe { libc::mremap(base, 0, self.len, flags) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        let len = self.len;
        Ok(Self { base, len })
    }

    /// Maps the first `len` bytes behind a descriptor, to read and to write.
    pub(crate) fn shared(fd: RawFd, len: usize) -> io::Result<Self> {
        Self::new(len, READ_AND_WRITE, 0, fd, 0)
    }

    pub(crate) fn new(
        len: usize,
        protection: c_int,
        flags: c_int,
        fd: RawFd,
        offset: usize,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let flags = flags | libc::MAP_SHARED;
        // SAFETY: the kernel chooses a free address, so the new mapping replaces no other mapping.
        let base = unsafe { libc::mmap(null_mut(), len, protection, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len })
    }

    /// The first byte of the mapping.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The mapping's length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping is empty. The kernel makes no such mapping.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: only this value owns the mapping, and no reference into it exists any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Replaces all mappings of the socket with this inode in this process by private memory, so that
/// they don't keep the socket alive. Who unmaps such a mapping later unmaps that memory.
///
/// # Errors
/// `/proc/self/maps` can't be read; the error of mmap(2).
pub(crate) fn detach_socket(inode: u64) -> io::Result<()> {
    for (begin, end) in of_socket(inode)? {
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = std::ptr::with_exposed_provenance_mut(begin);
        // SAFETY: the range is a mapping of the socket, of which the caller says that nobody reads
        // it. Whoever still refers to it finds zeros there.
        let new = unsafe { libc::mmap(at, end - begin, READ_AND_WRITE, flags, -1, 0) };
        if new == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The addresses at which the mappings of a socket begin and end in this process.
pub(crate) fn of_socket(inode: u64) -> io::Result<Vec<(usize, usize)>> {
    let name = format!("socket:[{inode}]");
    let mut found = Vec::new();
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        let Some((range, _)) = line.split_once(' ').filter(|_| line.ends_with(&name)) else {
            continue;
        };
        let ends = range.split('-').map(|end| usize::from_str_radix(end, 16));
        let ends: Result<Vec<usize>, _> = ends.collect();
        let [begin, end] = ends.unwrap_or_default()[..] else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        found.push((begin, end));
    }
    Ok(found)
}

pub(crate) const READ_AND_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
