//! Connections from processes that this process does not trust, on which it expects no descriptors
//! (`SCM_RIGHTS`).
//!
//! The last close of a file may take as long as its owner wants: a TCP socket with unsent bytes
//! waits (`SO_LINGER`), and the kernel frees a memory file page by page. The kernel closes the
//! files of a message in the thread that receives the message without room for them, and in the
//! thread that closes the socket whose queue has the message (net/core/scm.c, `__scm_destroy`;
//! fs/file_table.c, `fput`). So a [`PlainConnection`] first peeks at each message. The queue then
//! still has the message's files, so a peek closes none for the last time.

use crate::errno::check;
use crate::option::set;
use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A connection of which this value has the only descriptor. Its methods close no file for the last
/// time except the connection's socket. To drop the value may do so.
#[derive(Debug)]
pub struct PlainConnection(OwnedFd);

/// What is at the begin of a connection's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// A message of this many bytes, which may be more than the buffer has.
    Message(usize),
    /// A message with descriptors.
    Descriptors,
    /// Nothing, and nothing will come.
    End,
}

/// A connection that [`PlainConnection::close`] has ended, and not closed.
#[derive(Debug)]
pub enum Unclosed {
    /// The queue has descriptors, so a thread that must not wait must not drop the connection.
    Descriptors(PlainConnection),
    /// The queue has more messages. The next call takes some of them.
    Messages(PlainConnection),
}

/// How many messages [`PlainConnection::close`] takes out of a queue. The kernel calls all that
/// watch the sender's end for each of them (net/unix/af_unix.c, `unix_write_space`).
const MESSAGES_MAX: usize = 4;

impl PlainConnection {
    /// Takes a connection that was accepted.
    ///
    /// # Errors
    /// The error of setsockopt(2).
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        // Each message then has its sender's credentials. By these, a message without bytes is told
        // from the end, and they leave no room for descriptors.
        set::<c_int>(socket.as_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, &1)?;
        Ok(Self(socket))
    }

    /// Takes the next message out of the queue, without waiting, and returns its length. `None` at
    /// the end.
    ///
    /// # Errors
    /// - `EAGAIN` when no message is in the queue.
    /// - `InvalidData` for a message without bytes, for one that has more bytes than the buffer,
    ///   and for one with descriptors, which stays in the queue.
    /// - Other errors of recvmsg(2).
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.first(&mut [0], libc::MSG_PEEK)? {
            First::End => return Ok(None),
            First::Descriptors => return Err(io::ErrorKind::InvalidData.into()),
            First::Message(_) => {}
        }
        match self.first(buffer, 0)? {
            First::Message(len) if (1..=buffer.len()).contains(&len) => Ok(Some(len)),
            First::Message(_) | First::Descriptors => Err(io::ErrorKind::InvalidData.into()),
            First::End => Ok(None),
        }
    }

    /// Peeks at the next message, without waiting, and returns its length, which may be more than
    /// the buffer has. `None` at the end.
    ///
    /// # Errors
    /// `EAGAIN` when no message is in the queue, `InvalidData` for a message with descriptors, and
    /// other errors of recvmsg(2).
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.first(buffer, libc::MSG_PEEK)? {
            First::End => Ok(None),
            First::Descriptors => Err(io::ErrorKind::InvalidData.into()),
            First::Message(len) => Ok(Some(len)),
        }
    }

    /// Ends the connection, and closes it if its queue has no descriptors, and three messages at
    /// most.
    ///
    /// # Errors
    /// The connection, with what is left in its queue.
    pub fn close(self) -> Result<(), Unclosed> {
        // From now on the other end can't send.
        // SAFETY: takes plain numbers; the descriptor is open.
        let _ = check(unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_RDWR) });
        for _ in 0..MESSAGES_MAX {
            match self.first(&mut [0], libc::MSG_PEEK) {
                Ok(First::End) => return Ok(()),
                Ok(First::Descriptors) => return Err(Unclosed::Descriptors(self)),
                Ok(First::Message(_)) => _ = self.first(&mut [0], 0),
                // An error of the connection, such as ECONNRESET, comes before the queue, once.
                Err(_) => {}
            }
        }
        Err(Unclosed::Messages(self))
    }

    /// Receives the first message, or peeks at it.
    fn first(&self, buffer: &mut [u8], flags: c_int) -> io::Result<First> {
        let mut control = Control([0; CONTROL_LEN]);
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let flags = flags | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        loop {
            // SAFETY: zeros are a valid value of this struct: null addresses and no lengths.
            let mut header: libc::msghdr = unsafe { mem::zeroed() };
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut control).cast();
            header.msg_controllen = CONTROL_LEN;
            // SAFETY: the header's buffers are live and writable, with their own lengths.
            let len = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut header, flags) };
            let len = match usize::try_from(len).map_err(|_| io::Error::last_os_error()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                len => len?,
            };
            return Ok(match header.msg_controllen {
                _ if header.msg_flags & libc::MSG_CTRUNC != 0 => First::Descriptors,
                0 => First::End,
                _ => First::Message(len),
            });
        }
    }
}

impl AsFd for PlainConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Room for the sender's credentials: struct cmsghdr, and struct ucred of 12 bytes
/// (linux/socket.h).
const CONTROL_LEN: usize = 32;

#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// Makes the last close of a TCP socket wait until the other end has got all bytes, but at most for
/// so many seconds (`SO_LINGER`). Tests use this.
///
/// # Errors
/// The error of setsockopt(2).
pub fn set_linger(socket: BorrowedFd<'_>, seconds: u16) -> io::Result<()> {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: seconds.into(),
    };
    set(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unix::{message, pair};
    use crate::wait::pipe::{self, Pipe};

    fn scene() -> (OwnedFd, PlainConnection) {
        let [from, to] = pair().unwrap();
        (from, PlainConnection::new(to).unwrap())
    }

    /// Sends a message, also one without bytes, which has a descriptor or not.
    fn send(from: &OwnedFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) {
        if !bytes.is_empty() {
            let all: Vec<_> = fd.into_iter().collect();
            return message::send(from.as_fd(), bytes, &all).unwrap();
        }
        assert!(fd.is_none());
        let fd = from.as_raw_fd();
        // SAFETY: the call reads no bytes.
        assert_eq!(unsafe { libc::send(fd, std::ptr::null(), 0, 0) }, 0);
    }

    /// Closes a connection, in as many calls as it takes.
    fn close(mut connection: PlainConnection) -> Result<(), PlainConnection> {
        for _ in 0..100 {
            match connection.close() {
                Ok(()) => return Ok(()),
                Err(Unclosed::Descriptors(it)) => return Err(it),
                Err(Unclosed::Messages(it)) => connection = it,
            }
        }
        panic!("the queue has no end");
    }

    fn kind(result: io::Result<Option<usize>>) -> io::ErrorKind {
        result.unwrap_err().kind()
    }

    #[test]
    fn messages_come_in_their_order_and_then_the_end() {
        let (from, to) = scene();
        let mut buffer = [0; 4];
        assert_eq!(kind(to.receive(&mut buffer)), io::ErrorKind::WouldBlock);
        send(&from, b"abc", None);
        assert_eq!(to.peek(&mut buffer[..2]).unwrap(), Some(3));
        send(&from, b"", None);
        send(&from, b"abcde", None);
        send(&from, b"d", None);
        drop(from);
        assert_eq!(to.receive(&mut buffer).unwrap(), Some(3));
        assert_eq!(buffer, *b"abc\0");
        for _ in 0..2 {
            assert_eq!(kind(to.receive(&mut buffer)), io::ErrorKind::InvalidData);
        }
        assert_eq!(to.receive(&mut buffer).unwrap(), Some(1));
        for _ in 0..2 {
            assert_eq!(to.receive(&mut buffer).unwrap(), None);
        }
    }

    #[test]
    fn a_descriptor_stays_open_until_the_connection_is_dropped() {
        for before in [&[][..], &[&b""[..]], &[b"", b"x", b""]] {
            let (from, to) = scene();
            let Pipe { read, write } = Pipe::new().unwrap();
            before.iter().for_each(|bytes| send(&from, bytes, None));
            send(&from, b"y", Some(write.as_fd()));
            drop(write);
            let is_closed = || pipe::has_hung_up(read.as_fd()).unwrap();
            while to.receive(&mut [0; 4]).is_ok_and(|it| it.is_some()) {}
            drop(from);
            for _ in 0..9 {
                let _ = to.receive(&mut [0; 4]);
            }
            assert!(!is_closed());
            let unclosed = close(to).unwrap_err();
            assert!(!is_closed());
            drop(unclosed);
            assert!(pipe::hangs_up(read.as_fd()));
        }
    }

    #[test]
    fn a_connection_without_descriptors_is_closed_and_its_other_end_can_send_no_more() {
        for is_reset in [false, true] {
            let (from, to) = scene();
            if is_reset {
                // What the other end leaves in its queue makes an error at this end.
                message::send(to.as_fd(), b"x", &[]).unwrap();
            }
            (0..20).for_each(|_| send(&from, b"x", None));
            let from = Some(from).filter(|_| !is_reset);
            close(to).unwrap();
            if let Some(from) = from {
                let sent = message::send(from.as_fd(), b"x", &[]).unwrap_err();
                assert_eq!(sent.kind(), io::ErrorKind::BrokenPipe);
            }
        }
        let (from, to) = scene();
        (0..100).for_each(|_| send(&from, b"x", None));
        let Err(Unclosed::Messages(to)) = to.close() else {
            panic!("the messages are too many for one call");
        };
        let left = (0..100).take_while(|_| to.receive(&mut [0]).is_ok_and(|it| it.is_some()));
        assert_eq!(left.count(), 96, "a few messages");
    }

    /// The error of a reset connection comes before the messages.
    #[test]
    fn descriptors_behind_an_error_are_found() {
        let (from, to) = scene();
        let pipe = Pipe::new().unwrap();
        message::send(to.as_fd(), b"x", &[]).unwrap();
        send(&from, b"y", Some(pipe.write.as_fd()));
        drop((from, pipe.write));
        let unclosed = close(to).unwrap_err();
        assert!(!pipe::has_hung_up(pipe.read.as_fd()).unwrap());
        drop(unclosed);
        assert!(pipe::hangs_up(pipe.read.as_fd()));
    }
}
