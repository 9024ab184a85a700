//! Converts the return value of a system call to a result.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Returns the error in errno if the system call returned a negative number.
pub(crate) fn check(rc: libc::c_int) -> io::Result<()> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Returns the new descriptor that a system call returned, or the error in errno.
pub(crate) fn owned(fd: impl Into<libc::c_long>) -> io::Result<OwnedFd> {
    let fd = fd.into();
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the descriptor is new, and no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
