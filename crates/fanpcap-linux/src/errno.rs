//! Converts the return value of a system call to a result.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Returns the error in errno if a call returned a negative number.
pub(crate) fn check(rc: libc::c_int) -> io::Result<()> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

pub(crate) fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
