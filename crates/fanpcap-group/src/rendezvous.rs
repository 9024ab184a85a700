//! The rendezvous of a steered group, at which a newcomer asks for the group's descriptors. The
//! rendezvous is a Unix socket beside the member pages.
//!
//! All members have this socket, and the epoll instance of the lifelines watches it. So any member
//! that waits or reads can answer. Only root and the user who opened the socket get an answer.

use crate::page::{GroupDir, Page};
use crate::record::{DESCRIPTORS, WITH_REGISTRY};
use fanpcap_linux::unix::{self, message, named};
use fanpcap_linux::wait::events;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

/// The bytes of an answer: a magic, and the version of the set of descriptors in the answer.
const ANSWER: [u8; 8] = *b"FPDOOR_1";

/// The socket's backlog. A newcomer holds the group's lock while it asks, so only one asks at a
/// time. But connections of newcomers that have given up stay in the backlog until a member accepts
/// them.
const NEWCOMERS_MAX: i32 = 16;

/// How long connect(2) may wait for a place in the backlog.
const PLACE_WITHIN: Duration = Duration::from_millis(10);

/// The listening socket.
#[derive(Debug)]
pub(crate) struct Rendezvous(OwnedFd);

impl Rendezvous {
    /// Makes a socket that does not listen yet.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub(crate) fn new() -> io::Result<Self> {
        named::socket().map(Self)
    }

    /// Takes a socket that another member has handed over.
    ///
    /// # Errors
    /// `InvalidData` for another kind of descriptor.
    pub(crate) fn of(socket: OwnedFd) -> io::Result<Self> {
        match named::is_for_names(socket.as_fd())? {
            true => Ok(Self(socket)),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Binds the socket beside the page of the group's first member, and listens. That member holds
    /// the group's lock.
    ///
    /// # Errors
    /// The errors of bind(2) and listen(2).
    pub(crate) fn open(&self, page: &Page) -> io::Result<()> {
        let (directory, name) = page.place_for_rendezvous();
        named::listen(
            self.as_fd(),
            directory,
            OsStr::new(&name),
            0o600,
            NEWCOMERS_MAX,
        )
    }

    /// Sends these descriptors to all newcomers that wait.
    ///
    /// # Errors
    /// The errors of accept(2). In this case, some newcomers may still wait.
    pub(crate) fn answer(&self, shared: &[BorrowedFd<'_>]) -> io::Result<()> {
        for _ in 0..=NEWCOMERS_MAX {
            match named::accept(self.as_fd()) {
                Ok(Some(newcomer)) if self.admits(newcomer.as_fd()) => {
                    // Best effort: the newcomer may have given up. The send never blocks.
                    let _ = message::send(newcomer.as_fd(), &ANSWER, shared);
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                // The socket does not listen, so there are no newcomers.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether root or the user who opened the socket runs the newcomer.
    fn admits(&self, newcomer: BorrowedFd<'_>) -> bool {
        let user = |fd| unix::peer(fd).map(|peer| peer.user);
        let pair = user(newcomer).and_then(|it| Ok((it, user(self.as_fd())?)));
        pair.is_ok_and(|(newcomer, opener)| newcomer == 0 || newcomer == opener)
    }
}

impl AsFd for Rendezvous {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A newcomer's request for the descriptors of its group.
#[derive(Debug)]
pub(crate) struct DescriptorRequest<'a> {
    group_dir: Option<&'a GroupDir>,
    /// Connections on which no answer has come yet. There may be several, because a forked child
    /// may have kept a former group's socket.
    waiting: Vec<OwnedFd>,
    /// Whether the last attempt found a socket.
    has_found: bool,
    reason: NoAnswer,
}

/// Why a newcomer has no answer.
#[derive(Debug)]
enum NoAnswer {
    NoSocket,
    Waiting,
    Refused,
    Error(io::Error),
}

impl<'a> DescriptorRequest<'a> {
    pub(crate) fn at(group_dir: Option<&'a GroupDir>) -> Self {
        Self {
            group_dir,
            waiting: Vec::new(),
            has_found: false,
            reason: NoAnswer::NoSocket,
        }
    }

    /// Sends the request, unless a request is under way. Returns the answer, if it has come.
    pub(crate) fn poll(&mut self) -> Option<Vec<OwnedFd>> {
        if self.waiting.is_empty() {
            self.connect();
        }
        let mut answer = None;
        let Self {
            waiting, reason, ..
        } = self;
        waiting.retain(|rendezvous| match receive(rendezvous.as_fd()) {
            Ok(descriptors) => {
                answer = Some(descriptors);
                false
            }
            Err(NoAnswer::Waiting) => true,
            Err(new) => {
                *reason = new;
                false
            }
        });
        answer
    }

    /// Whether an answer may still come.
    pub(crate) fn may_be_answered(&self) -> bool {
        self.has_found
    }

    /// Whether any attempt has found a socket.
    pub(crate) fn has_found_any(&self) -> bool {
        !matches!(self.reason, NoAnswer::NoSocket)
    }

    /// Records that the answer had no descriptors of a group.
    pub(crate) fn reject_answer(&mut self, error: io::Error) {
        self.reason = NoAnswer::Error(error);
    }

    pub(crate) fn wait(&self, limit: Duration) {
        let waiting: Vec<_> = self.waiting.iter().map(AsFd::as_fd).collect();
        if events::poll(&waiting, Some(limit)).is_err() {
            thread::sleep(limit);
        }
    }

    fn connect(&mut self) {
        self.has_found = false;
        let Some(Ok((directory, names))) = self.group_dir.map(GroupDir::rendezvous_sockets) else {
            return;
        };
        for name in names {
            let error = match named::connect(&directory, &name, PLACE_WITHIN) {
                Ok(rendezvous) => {
                    self.waiting.push(rendezvous);
                    None
                }
                // No process has the socket any more.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => Some(error).filter(|it| it.kind() != io::ErrorKind::TimedOut),
            };
            self.has_found = true;
            match error {
                Some(error) => self.reason = NoAnswer::Error(error),
                // Keep the earlier reason, which is more exact.
                None if self.has_found_any() => {}
                None => self.reason = NoAnswer::Waiting,
            }
        }
    }
}

fn receive(rendezvous: BorrowedFd<'_>) -> Result<Vec<OwnedFd>, NoAnswer> {
    let mut bytes = [0; ANSWER.len()];
    let message = match message::receive(rendezvous, &mut bytes, WITH_REGISTRY) {
        Ok(Some(message)) => message,
        Ok(None) => return Err(NoAnswer::Refused),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(NoAnswer::Waiting),
        Err(error) => return Err(NoAnswer::Error(error)),
    };
    let count = message.descriptors.len();
    let is_answer = message.len == ANSWER.len() && bytes == ANSWER;
    match is_answer && [DESCRIPTORS, WITH_REGISTRY].contains(&count) {
        true => Ok(message.descriptors),
        false => Err(NoAnswer::Error(io::ErrorKind::InvalidData.into())),
    }
}

/// Says why there is no answer.
impl fmt::Display for DescriptorRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            NoAnswer::NoSocket => f.write_str("the group has no socket beside its pages"),
            NoAnswer::Waiting => {
                f.write_str("no member answers: no application of the group reads its handle")
            }
            NoAnswer::Refused => {
                f.write_str("the group belongs to another user: join as that user or as root")
            }
            NoAnswer::Error(error) => write!(f, "the group's socket: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
