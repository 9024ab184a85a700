//! Asks a poller about its groups, for processes that are no members.

use crate::message::{LONGEST, Question, Reply, SeenGroup};
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::unix::{self, Peer, message, named};
use fanpcap_linux::wait::{clock, events};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A connection to a poller. The poller closes it after five seconds, unless it watches a group.
#[derive(Debug)]
pub struct Asking {
    connection: OwnedFd,
    buffer: Vec<u8>,
    limit: Duration,
}

impl Asking {
    /// Connects to the poller whose socket has this name. Waits at most for `limit`, here and for
    /// each reply.
    ///
    /// # Errors
    /// As [`named::connect`].
    pub fn connect(directory: &Directory, name: &OsStr, limit: Duration) -> io::Result<Self> {
        Ok(Self {
            connection: named::connect(directory, name, limit)?,
            buffer: vec![0; LONGEST],
            limit,
        })
    }

    /// The poller's process.
    ///
    /// # Errors
    /// The error of getsockopt(2).
    pub fn peer(&self) -> io::Result<Peer> {
        unix::peer(self.connection.as_fd())
    }

    /// Asks a question, and waits for the reply.
    ///
    /// # Errors
    /// `TimedOut`; `UnexpectedEof` if the poller has closed the connection; `InvalidData` for bytes
    /// that are no reply of this version; the errors of sendmsg(2) and recvmsg(2).
    pub fn ask(&mut self, question: Question) -> io::Result<Reply> {
        message::send(self.connection.as_fd(), &question.encode(), &[])?;
        let limit = u64::try_from(self.limit.as_nanos()).unwrap_or(u64::MAX);
        let due_ns = clock::monotonic_ns().saturating_add(limit);
        loop {
            match message::receive(self.connection.as_fd(), &mut self.buffer, 0) {
                Ok(Some(message)) => {
                    let bytes = self.buffer.get(..message.len).unwrap_or_default();
                    let reply = Reply::decode(bytes);
                    return reply.map_err(|it| io::Error::new(io::ErrorKind::InvalidData, it));
                }
                Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let left = due_ns.saturating_sub(clock::monotonic_ns());
            if left == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match events::poll(&[self.connection.as_fd()], Some(Duration::from_nanos(left))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }

    /// All groups that the poller shows to this process's user.
    ///
    /// # Errors
    /// As [`Asking::ask`].
    pub fn groups(&mut self) -> io::Result<Vec<SeenGroup>> {
        let (mut groups, mut next) = (Vec::new(), Some(0));
        while let Some(index) = next {
            let Reply::Group(group) = self.ask(Question::Look(index))? else {
                break;
            };
            // A poller that goes back would be asked for ever.
            if group.index < index {
                return Err(io::ErrorKind::InvalidData.into());
            }
            next = group.index.checked_add(1);
            groups.push(*group);
        }
        Ok(groups)
    }
}
