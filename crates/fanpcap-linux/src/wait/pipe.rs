//! Pipes as lifelines. When all descriptors of a pipe's write end are closed, for example because
//! the process that had them has ended, the pipe hangs up (pipe(7)).

use crate::errno::check;
use std::ffi::c_int;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

/// The two ends of a pipe, which are closed on exec and do not block.
#[derive(Debug)]
pub struct Pipe {
    /// The end at which poll(2) reports the hang-up.
    pub read: OwnedFd,
    /// The write end. When the last descriptor of this end is closed, the pipe hangs up.
    pub write: OwnedFd,
}

impl Pipe {
    /// Makes a pipe.
    ///
    /// # Errors
    /// `EMFILE` and other errors of pipe(2).
    pub fn new() -> io::Result<Self> {
        let mut ends: [c_int; 2] = [-1; 2];
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the array has room for the two numbers that the call writes.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), flags) })?;
        let [read, write] = ends;
        Ok(Self {
            // SAFETY: the descriptor is new, and no other value owns it.
            read: unsafe { OwnedFd::from_raw_fd(read) },
            // SAFETY: the descriptor is new, and no other value owns it.
            write: unsafe { OwnedFd::from_raw_fd(write) },
        })
    }
}

/// Whether all descriptors of the other end are closed. Also for the ends of a Unix socket.
///
/// # Errors
/// The error of poll(2), except `EINTR`.
pub fn has_hung_up(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(super::state(fd)? & libc::POLLHUP != 0)
}

/// Waits for the hang-up, which may be late: processes that other tests start have copies of all
/// descriptors until their exec(2).
#[cfg(test)]
pub(crate) fn hangs_up(fd: BorrowedFd<'_>) -> bool {
    let limit = std::time::Duration::from_secs(10);
    super::wait(Some(fd), None, Some(limit)).unwrap();
    has_hung_up(fd).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    #[test]
    fn the_last_writer_hangs_up() {
        let pipe = Pipe::new().unwrap();
        let copy = pipe.write.try_clone().unwrap();
        drop(pipe.write);
        assert!(!has_hung_up(pipe.read.as_fd()).unwrap());
        drop(copy);
        assert!(hangs_up(pipe.read.as_fd()));
    }

    #[test]
    fn a_process_that_is_killed_hangs_up() {
        let pipe = Pipe::new().unwrap();
        let mut command = Command::new("sleep");
        let mut child = command.arg("1000").stdout(pipe.write).spawn().unwrap();
        // `command` still has a descriptor of the write end, which this call closes.
        command.stdout(Stdio::null());
        assert!(!has_hung_up(pipe.read.as_fd()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(hangs_up(pipe.read.as_fd()));
    }
}
