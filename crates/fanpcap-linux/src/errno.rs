//! Converts the return value of a system call to a result.

use std::io;

/// The error in errno, when a call returned a negative number.
pub(crate) fn check(rc: libc::c_int) -> io::Result<()> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
