//! A member's descriptors in the group's descriptor store: its socket, its page, and the rings if
//! an engine fills them.

use crate::page::MemberId;
use crate::record::{NOT_READ_BY_US, WORDS, at};
use crate::shared::Shared;
use fanpcap_engine::fd_store::StoredFd;
use fanpcap_linux::file::shared::{self, Word};
use fanpcap_linux::packet;
use fanpcap_linux::wait::events;
use fanpcap_reader::PublishedPosition;
use fanpcap_reader::borrowed::{self, Claims};
use fanpcap_ring::{Position, Remains};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The descriptors of a member, alive or dead.
pub(crate) struct MemberDescriptors {
    pub(crate) cookie: u64,
    pub(crate) socket: OwnedFd,
    pub(crate) words: [Word; WORDS],
    /// Empty if the socket has the ring.
    rings: Vec<OwnedFd>,
}

impl MemberDescriptors {
    /// Finds the descriptors of the member whose socket has this cookie; `None` if the member has
    /// no page. The caller holds the group's lock.
    pub(crate) fn of(shared: &Shared, cookie: u64) -> Option<Self> {
        let descriptors = shared.fd_store.find(StoredFd::Member(cookie)).ok()??;
        Self::from(cookie, descriptors)
    }

    /// Takes the descriptors of an entry of the store.
    pub(crate) fn from(cookie: u64, descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let (socket, page) = (descriptors.next()?, descriptors.next()?);
        Some(Self {
            cookie,
            socket,
            words: shared::join(&File::from(page)).ok()?,
            rings: descriptors.collect(),
        })
    }

    /// The words on which the member publishes its position in the ring.
    pub(crate) fn published(&self) -> PublishedPosition {
        PublishedPosition {
            taken: self.words[at::TAKEN].clone(),
            mark: self.words[at::BLOCK].clone(),
        }
    }

    /// Claims the ring of a living member whose application has never read it. `None` if the
    /// application has begun to read the ring, or if the system's library reads it.
    pub(crate) fn borrow(&self) -> Option<Claims> {
        let is_ours = self.words[at::TAKEN].get() != NOT_READ_BY_US;
        Claims::on(&self.words[at::LOOKED_NS]).filter(|_| is_ours)
    }

    /// How far the ring has been read.
    fn position(&self) -> Position {
        let position = self.published().get();
        // If a reader died after it claimed a frame and before it published the new number of
        // frames, only the claim has this number.
        let claimed = borrowed::claimed(self.words[at::LOOKED_NS].get());
        let claimed = claimed.filter(|_| position.taken != NOT_READ_BY_US);
        Position {
            taken: claimed.unwrap_or(position.taken),
            ..position
        }
    }

    /// The position of our reader, if the ring has unread packets. Callers compare two positions,
    /// to find a reader that takes no packets.
    pub(crate) fn unread(&self, shared: &Shared) -> Option<Position> {
        let position = self.position();
        let is_known = position.taken != NOT_READ_BY_US;
        let has_unread = match &shared.on_device {
            None => events::poll(&[self.socket.as_fd()], Some(Duration::ZERO)).ok()? == [true],
            Some(on_device) => on_device.has_unread(&self.rings).ok()?,
        };
        Some(position).filter(|_| is_known && has_unread)
    }

    /// The unread packets in the ring; `None` if unknown. Maps the ring.
    pub(crate) fn remains(&self, shared: &Shared) -> Option<Remains> {
        let position = self.position();
        let is_known = position.taken != NOT_READ_BY_US;
        let socket = self.socket.as_fd();
        match &shared.on_device {
            _ if !is_known => None,
            None => {
                let roster = shared.namespace.roster().ok()?;
                let told = roster.find(MemberId::of_socket(packet::inode(socket).ok()?))?;
                fanpcap_engines::remains_of_socket(socket, told, position).ok()
            }
            Some(on_device) => {
                let rings = self.rings.iter().map(OwnedFd::try_clone);
                let rings = rings.collect::<io::Result<_>>().ok()?;
                on_device.remains(rings, position.taken).ok()
            }
        }
    }
}
