//! Advisory locks on whole files (flock(2)): they end with the last descriptor, however a process dies.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Takes the exclusive lock of a file, without waiting; false when somebody else has it.
pub fn try_exclusive(file: &File) -> io::Result<bool> {
    try_lock(file, libc::LOCK_EX)
}

/// Takes a shared lock, without waiting; false when somebody else has the exclusive one.
pub fn try_shared(file: &File) -> io::Result<bool> {
    try_lock(file, libc::LOCK_SH)
}

fn try_lock(file: &File, kind: i32) -> io::Result<bool> {
    // SAFETY: flock takes plain numbers; the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error => Err(error),
    }
}
