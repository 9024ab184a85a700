//! Other processes, by a descriptor (pidfd_open(2)): waits for their end, and duplicates their
//! descriptors.

use crate::errno::owned;
use crate::wait::{self, POLLIN};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// A process. After the process has ended, the value still refers to it, even if a new process has
/// got the same number.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// Opens the process that now has this number.
    ///
    /// # Errors
    /// `ESRCH` when no process has this number; `ENOSYS` before Linux 5.3.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: takes plain numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        owned(fd).map(Self)
    }

    /// Duplicates the process's descriptor `fd`, which may be of any kind (pidfd_getfd(2)). The
    /// copy is closed on exec.
    ///
    /// # Errors
    /// `EBADF` when the process has no such descriptor, `EPERM` when the caller may not trace the
    /// process (ptrace(2)), `ESRCH` when the process has ended, `ENOSYS` before Linux 5.6.
    pub fn duplicate(&self, fd: RawFd) -> io::Result<OwnedFd> {
        // SAFETY: takes plain numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), fd, 0) };
        owned(fd)
    }

    /// Duplicates the process's socket with this inode, which packet diag reports. `pid` is the
    /// process's number.
    ///
    /// # Errors
    /// `ENOENT` when the process has no such socket; otherwise as [`Process::duplicate`].
    pub fn socket(&self, pid: u32, inode: u64) -> io::Result<OwnedFd> {
        let name = format!("socket:[{inode}]");
        let numbers = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
        let is_it = |entry: &fs::DirEntry| {
            fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == name.as_str())
        };
        let mut found = numbers
            .filter_map(|entry| is_it(&entry).then(|| entry.file_name().to_str()?.parse().ok())?);
        let none = || io::Error::from_raw_os_error(libc::ENOENT);
        let socket = File::from(self.duplicate(found.next().ok_or_else(none)?)?);
        // After the number was found, the process may have closed the descriptor and opened another
        // file under the same number.
        if socket.metadata()?.ino() == inode {
            Ok(socket.into())
        } else {
            Err(none())
        }
    }

    /// Waits until the process has ended, at most for `limit`. Returns whether the process has
    /// ended, so that none of its threads runs and its descriptors are closed.
    ///
    /// # Errors
    /// `EINTR` after a signal handler has run, and other errors of poll(2).
    pub fn ends_within(&self, limit: Option<Duration>) -> io::Result<bool> {
        let woken = wait::wait(Some(self.0.as_fd()), None, limit)?;
        Ok(woken.socket & POLLIN != 0)
    }
}

/// Whether an error of [`Process::open`] or [`Process::duplicate`] means that the process has
/// ended, or has closed the descriptor.
pub fn has_let_go(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EBADF))
}

impl AsFd for Process {
    /// The descriptor is readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet;
    use crate::wait::pipe::{Pipe, hangs_up, has_hung_up};
    use std::net::UdpSocket;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_held_beyond_its_end() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        assert!(!process.ends_within(Some(Duration::ZERO)).unwrap());
        drop(child.stdin.take());
        assert!(process.ends_within(None).unwrap());
        child.wait().unwrap();
        assert!(process.ends_within(Some(Duration::ZERO)).unwrap());
        assert!(process.duplicate(0).is_err());
    }

    #[test]
    fn any_descriptor_is_duplicated() {
        let pipe = Pipe::new().unwrap();
        let own = Process::open(std::process::id()).unwrap();
        let copy = own.duplicate(pipe.write.as_raw_fd()).unwrap();
        let number = pipe.write.as_raw_fd();
        drop(pipe.write);
        assert!(!has_hung_up(pipe.read.as_fd()).unwrap());
        drop(copy);
        assert!(hangs_up(pipe.read.as_fd()));
        let none = own.duplicate(i32::MAX - number).unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::EBADF));
        assert!(has_let_go(&none));
    }

    #[test]
    fn a_socket_is_found_by_its_inode() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let inode = packet::inode(udp.as_fd()).unwrap();
        let own = Process::open(std::process::id()).unwrap();
        let same = own.socket(std::process::id(), inode).unwrap();
        assert_eq!(packet::inode(same.as_fd()).unwrap(), inode);
        let none = own.socket(std::process::id(), inode.wrapping_add(1_000_000_007));
        assert_eq!(none.unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }
}
