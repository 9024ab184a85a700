//! The network namespace of the calling thread. The thread can enter a new namespace, return to an
//! earlier one, and compare namespaces.

use crate::errno::check;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::fs::MetadataExt;

/// Moves only the calling thread to a new network namespace. Threads and processes that this thread
/// starts from now on begin in that namespace. The namespace ends with the last thread or process
/// in it.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn enter_new() -> io::Result<()> {
    // SAFETY: unshare takes no pointers, and changes only the calling thread's namespace.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// Opens the calling thread's network namespace, for [`enter`].
///
/// # Errors
/// The error of opening `/proc/thread-self/ns/net`.
pub fn current() -> io::Result<OwnedFd> {
    File::open(OWN).map(OwnedFd::from)
}

/// Moves the calling thread to the network namespace behind `namespace`.
///
/// # Errors
/// `EINVAL` when the descriptor is not a network namespace, `EPERM` without `CAP_SYS_ADMIN`.
pub fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns takes no pointers, and the descriptor is open for as long as it is borrowed.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Returns the inode number of the calling thread's network namespace. The number is unique while
/// the namespace exists.
///
/// # Errors
/// The error of stat(2) for `/proc/thread-self/ns/net`.
pub fn inode() -> io::Result<u64> {
    Ok(fs::metadata(OWN)?.st_ino())
}

const OWN: &str = "/proc/thread-self/ns/net";
