//! The door of a steered group: a Unix socket beside the pages of its members, at which a newcomer
//! asks for what they share.
//!
//! All members have the one socket, and the lifelines' epoll instance watches it. So any member
//! that waits or reads answers, and no wait gets deeper by it. Only the user whose member opened
//! the door and root may knock.

use crate::page::{GroupDir, Page};
use crate::record::{DESCRIPTORS, WITH_DOCK};
use fanpcap_linux::unix::{self, message, named};
use fanpcap_linux::wait::events;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

/// The bytes of an answer: what it is, and the version of what comes with it.
const ANSWER: [u8; 8] = *b"FPDOOR_1";

/// Newcomers that wait at most. Each has the group's lock, but one that has given up still waits.
const NEWCOMERS_MAX: i32 = 16;

/// How long to wait for a place among them.
const PLACE_WITHIN: Duration = Duration::from_millis(10);

/// The socket.
#[derive(Debug)]
pub(crate) struct Door(OwnedFd);

impl Door {
    /// One that is not open yet.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub(crate) fn new() -> io::Result<Self> {
        named::socket().map(Self)
    }

    /// That which another member has handed over.
    ///
    /// # Errors
    /// When it is another kind of descriptor.
    pub(crate) fn of(socket: OwnedFd) -> io::Result<Self> {
        match named::is_for_names(socket.as_fd())? {
            true => Ok(Self(socket)),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Opens it beside the page of the group's first member, who holds the group's lock.
    ///
    /// # Errors
    /// What bind(2) says.
    pub(crate) fn open(&self, page: &Page) -> io::Result<()> {
        let (directory, name) = page.place_for_door();
        named::listen(
            self.as_fd(),
            directory,
            OsStr::new(&name),
            0o600,
            NEWCOMERS_MAX,
        )
    }

    /// Hands these descriptors to all who have knocked.
    ///
    /// # Errors
    /// What accept(2) says; then somebody is still waiting.
    pub(crate) fn answer(&self, shared: &[BorrowedFd<'_>]) -> io::Result<()> {
        for _ in 0..=NEWCOMERS_MAX {
            match named::accept(self.as_fd()) {
                Ok(Some(newcomer)) if self.admits(newcomer.as_fd()) => {
                    // Best effort: it may have given up. It never keeps this member waiting.
                    let _ = message::send(newcomer.as_fd(), &ANSWER, shared);
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                // Not open.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether root knocks, or the user who has opened the door.
    fn admits(&self, newcomer: BorrowedFd<'_>) -> bool {
        let user = |fd| unix::peer(fd).map(|peer| peer.user);
        let pair = user(newcomer).and_then(|it| Ok((it, user(self.as_fd())?)));
        pair.is_ok_and(|(newcomer, opener)| newcomer == 0 || newcomer == opener)
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A newcomer at the door of its group.
#[derive(Debug)]
pub(crate) struct Knock<'a> {
    group_dir: Option<&'a GroupDir>,
    /// Connections without an answer yet. One may be to the door of a former group, whose socket a
    /// forked child has kept.
    waiting: Vec<OwnedFd>,
    /// Whether there was a door when this newcomer knocked last.
    is_at_a_door: bool,
    hindrance: Hindrance,
}

/// Why a newcomer has no answer.
#[derive(Debug)]
enum Hindrance {
    NoDoor,
    Silence,
    Refusal,
    Error(io::Error),
}

impl<'a> Knock<'a> {
    pub(crate) fn at(group_dir: Option<&'a GroupDir>) -> Self {
        Self {
            group_dir,
            waiting: Vec::new(),
            is_at_a_door: false,
            hindrance: Hindrance::NoDoor,
        }
    }

    /// Knocks, if nobody is about to answer, and takes the answer, if there is one.
    pub(crate) fn hear(&mut self) -> Option<Vec<OwnedFd>> {
        if self.waiting.is_empty() {
            self.knock();
        }
        let mut answer = None;
        let Self {
            waiting, hindrance, ..
        } = self;
        waiting.retain(|door| match receive(door.as_fd()) {
            Ok(descriptors) => {
                answer = Some(descriptors);
                false
            }
            Err(Hindrance::Silence) => true,
            Err(reason) => {
                *hindrance = reason;
                false
            }
        });
        answer
    }

    /// Whether somebody may answer yet.
    pub(crate) fn is_at_a_door(&self) -> bool {
        self.is_at_a_door
    }

    pub(crate) fn found_a_door(&self) -> bool {
        !matches!(self.hindrance, Hindrance::NoDoor)
    }

    /// The answer was none of a group's.
    pub(crate) fn distrust(&mut self, error: io::Error) {
        self.hindrance = Hindrance::Error(error);
    }

    /// Waits for an answer.
    pub(crate) fn wait(&self, limit: Duration) {
        let waiting: Vec<_> = self.waiting.iter().map(AsFd::as_fd).collect();
        if events::poll(&waiting, Some(limit)).is_err() {
            thread::sleep(limit);
        }
    }

    fn knock(&mut self) {
        self.is_at_a_door = false;
        let Some(Ok((directory, names))) = self.group_dir.map(GroupDir::doors) else {
            return;
        };
        for name in names {
            let error = match named::connect(&directory, &name, PLACE_WITHIN) {
                Ok(door) => {
                    self.waiting.push(door);
                    None
                }
                // Nobody has it any more.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => Some(error).filter(|it| it.kind() != io::ErrorKind::TimedOut),
            };
            self.is_at_a_door = true;
            match error {
                Some(error) => self.hindrance = Hindrance::Error(error),
                // Another reason says more.
                None if self.found_a_door() => {}
                None => self.hindrance = Hindrance::Silence,
            }
        }
    }
}

/// What has come from a door.
fn receive(door: BorrowedFd<'_>) -> Result<Vec<OwnedFd>, Hindrance> {
    let mut bytes = [0; ANSWER.len()];
    let message = match message::receive(door, &mut bytes, WITH_DOCK) {
        Ok(Some(message)) => message,
        Ok(None) => return Err(Hindrance::Refusal),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Hindrance::Silence),
        Err(error) => return Err(Hindrance::Error(error)),
    };
    let count = message.descriptors.len();
    let is_answer = message.len == ANSWER.len() && bytes == ANSWER;
    match is_answer && [DESCRIPTORS, WITH_DOCK].contains(&count) {
        true => Ok(message.descriptors),
        false => Err(Hindrance::Error(io::ErrorKind::InvalidData.into())),
    }
}

/// Why there is no answer.
impl fmt::Display for Knock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hindrance {
            Hindrance::NoDoor => f.write_str("the group has no door"),
            Hindrance::Silence => {
                f.write_str("nobody answers at the group's door, as no member is reading")
            }
            Hindrance::Refusal => f.write_str("another user is not let in at the group's door"),
            Hindrance::Error(error) => write!(f, "the group's door: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
