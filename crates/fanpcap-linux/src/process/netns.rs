//! Network namespaces of the calling thread: enter a new one, remember one, go back, tell them
//! apart.

use crate::errno::check;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::fs::MetadataExt;

/// Moves the calling thread, and no other, to a network namespace of its own. Threads and processes
/// that it starts from here on begin there; the namespace ends with the last of them.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn enter_new() -> io::Result<()> {
    // SAFETY: unshare takes no pointers; it changes only what the calling thread sees.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// The calling thread's network namespace, for [`enter`].
///
/// # Errors
/// Whatever opening `/proc/thread-self/ns/net` says.
pub fn current() -> io::Result<OwnedFd> {
    File::open(OWN).map(OwnedFd::from)
}

/// Moves the calling thread to the network namespace behind `namespace`.
///
/// # Errors
/// `EINVAL` when it is no network namespace, `EPERM` without `CAP_SYS_ADMIN`.
pub fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns takes no pointers, and the descriptor is open for as long as it is borrowed.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// The inode number that names the calling thread's network namespace while it exists.
///
/// # Errors
/// Whatever `/proc/thread-self/ns/net` says.
pub fn inode() -> io::Result<u64> {
    Ok(fs::metadata(OWN)?.st_ino())
}

const OWN: &str = "/proc/thread-self/ns/net";
