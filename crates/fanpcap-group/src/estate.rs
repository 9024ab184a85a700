//! What a member has left in the locker: its socket, and its page.

use crate::locker::Deposit;
use crate::record::{NOT_READ_BY_US, WORDS, at};
use crate::shared::Shared;
use fanpcap_linux::file::shared::{self, Word};
use fanpcap_linux::wait::events;
use fanpcap_reader::PublishedPosition;
use fanpcap_ring::{Position, Remains};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Socket and page of a member that lives or is gone.
pub(crate) struct Estate {
    pub(crate) cookie: u64,
    pub(crate) socket: OwnedFd,
    pub(crate) words: [Word; WORDS],
}

impl Estate {
    /// That of the member with this socket; `None` if it has no page. The caller holds the group's
    /// lock.
    pub(crate) fn of(shared: &Shared, cookie: u64) -> Option<Self> {
        let descriptors = shared.locker.find(Deposit::Socket(cookie)).ok()??;
        Self::from(cookie, descriptors)
    }

    /// That which these descriptors are, from the locker.
    pub(crate) fn from(cookie: u64, descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let (socket, page) = (descriptors.next()?, descriptors.next()?);
        Some(Self {
            cookie,
            socket,
            words: shared::join(&File::from(page)).ok()?,
        })
    }

    /// Where the member publishes how far it has come in its ring.
    pub(crate) fn published(&self) -> PublishedPosition {
        PublishedPosition {
            taken: self.words[at::TAKEN].clone(),
            mark: self.words[at::BLOCK].clone(),
        }
    }

    /// Where its reader stands, if it is ours, has a block or frame to read, and may be stuck.
    pub(crate) fn unread(&self) -> Option<Position> {
        let position = self.published().get();
        let is_known = position.taken != NOT_READ_BY_US;
        let found = events::poll(&[self.socket.as_fd()], Some(Duration::ZERO)).ok()?;
        Some(position).filter(|_| is_known && found.contains(&true))
    }

    /// What is unread; `None` where that is not known. Maps the ring.
    pub(crate) fn remains(&self) -> Option<Remains> {
        let position = self.published().get();
        let is_known = position.taken != NOT_READ_BY_US;
        let socket = self.socket.as_fd();
        is_known.then(|| fanpcap_tpacket::inherit(socket, position).ok())?
    }
}
