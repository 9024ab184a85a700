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

/// How often to ask a poller that closes the connection.
const ATTEMPTS: u32 = 3;

/// Whether the error is that the other end has closed the connection.
pub fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
    )
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

    /// Connects, and calls `ask`. Does both again if the poller has closed the connection: it does
    /// so if this process stands still for five seconds before its question.
    ///
    /// # Errors
    /// As [`Asking::connect`], and the errors of `ask`.
    pub fn with<T>(
        directory: &Directory,
        name: &OsStr,
        limit: Duration,
        mut ask: impl FnMut(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut once = || ask(&mut Self::connect(directory, name, limit)?);
        for _ in 1..ATTEMPTS {
            match once() {
                Err(error) if is_closed(&error) => {}
                done => return done,
            }
        }
        once()
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use std::fs;

    const NAME: &str = "packet:eth0";

    /// Asks a poller that closes the first `closed` connections before it gets a question.
    fn ask(name: &str, closed: usize) -> (io::Result<Reply>, usize) {
        let path = format!("fanpcap-asking-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(path);
        fs::create_dir(&path).unwrap();
        let directory = Directory::open(&path).unwrap();
        let listener = named::socket().unwrap();
        let name = OsStr::new(NAME);
        named::listen(listener.as_fd(), &directory, name, 0o600, 1).unwrap();
        let mut attempts = 0;
        let replied = Asking::with(&directory, name, Duration::from_secs(60), |asking| {
            let connection = named::accept(listener.as_fd())?.unwrap();
            attempts += 1;
            if attempts <= closed {
                drop(connection);
            } else {
                message::send(connection.as_fd(), &Reply::NoGroup.encode().unwrap(), &[])?;
            }
            asking.ask(Question::Look(0))
        });
        fs::remove_dir_all(&path).unwrap();
        (replied, attempts)
    }

    #[test]
    fn a_poller_that_has_closed_the_connection_is_asked_again() {
        let (replied, attempts) = ask("again", 2);
        assert_eq!((replied.unwrap(), attempts), (Reply::NoGroup, 3));
        let (replied, attempts) = ask("ever", 9);
        assert!(is_closed(&replied.unwrap_err()) && attempts == 3);
    }
}
