//! The memory of a packet socket's receive ring, mapped a second time beside its owner's mapping.

use crate::netlink::diag::{self, Geometry};
use crate::packet;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

/// The layout of a ring (`PACKET_VERSION`, linux/if_packet.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `TPACKET_V2`: one frame for each packet.
    V2,
    /// `TPACKET_V3`: packets one after the other in blocks.
    V3,
}

/// Reads layout and geometry of a socket's receive ring from packet diag.
///
/// # Errors
/// The kernel's error; `ENOENT` when the socket has no ring of a known layout, or is not in the
/// calling thread's network namespace.
pub fn of(socket: BorrowedFd<'_>) -> io::Result<(Version, Geometry)> {
    let inode = packet::inode(socket)?;
    let none = || io::Error::from_raw_os_error(libc::ENOENT);
    let mut sockets = diag::packet_sockets()?.into_iter();
    let own = sockets.find(|socket| u64::from(socket.inode) == inode);
    let own = own.ok_or_else(none)?;
    let version = match own.version {
        1 => Version::V2,
        2 => Version::V3,
        _ => return Err(none()),
    };
    Ok((version, own.ring.ok_or_else(none)?))
}

/// Memory that a ring's producer shares with its reader, mapped until dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the receive ring of a socket. The mapping keeps the socket alive, and in its group,
    /// until it is dropped.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn of(socket: BorrowedFd<'_>, geometry: &Geometry) -> io::Result<Self> {
        let Geometry {
            block_size,
            block_count,
            ..
        } = *geometry;
        let len = (block_size as usize).checked_mul(block_count as usize);
        let len = len.ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        Self::new(len, libc::MAP_SHARED, socket.as_raw_fd())
    }

    /// Memory that no kernel writes to, for other producers and for tests.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn anonymous(len: usize) -> io::Result<Self> {
        Self::new(len, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
    }

    fn new(len: usize, flags: c_int, fd: c_int) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other.
        let base = unsafe { libc::mmap(null_mut(), len, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, len })
    }

    /// The first byte of the mapping.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The mapping's length in bytes.
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
        // SAFETY: the mapping is ours alone and ends here.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
