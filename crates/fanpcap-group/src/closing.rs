//! Closes the socket of a dead member, so that every packet that the socket received is counted.
//!
//! A socket stays in its group and receives its share while any process has a descriptor of the
//! socket. Packets would be counted nowhere if they came after the last read of the socket's
//! counters, and before the socket left the group. So [`Closing`] first attaches a BPF program that
//! rejects and counts all packets.

use crate::page::{HeldPage, MemberId};
use crate::record::Record;
use crate::roster::Roster;
use fanpcap_linux::bpf::{self, LoadedProgram, Map};
use fanpcap_linux::packet::{self, Filter, Statistics};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, io};

/// Counters of a closed socket, since they were last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedSocket {
    /// Packets that passed the socket's filter, dropped ones included.
    pub received: u64,
    /// How many of these packets were lost because the ring was full.
    pub dropped: u64,
    /// Packets rejected while the socket was being closed, including packets that the socket's own
    /// filter would have rejected. `None` if these packets can't be counted: without `CAP_BPF`, or
    /// while another process still has the socket.
    pub refused: Option<u64>,
}

/// Packets that a dead member received and no application read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Packets in the ring that the reader had not taken.
    pub unread: u64,
    /// Packets lost because the ring was full.
    pub dropped: u64,
    /// Packets rejected while the socket was being closed; see [`ClosedSocket::refused`].
    pub refused: Option<u64>,
}

/// How long the kernel may take to release a closed socket.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// Why a member's socket can't be closed so that every packet is accounted for.
#[derive(Debug)]
pub enum CloseError {
    /// A forked child still has the member's handle and may read it. The socket is unchanged. Try
    /// again when the child has ended ([`HeldPage::is_had`]).
    StillHeld(OwnedFd),
    /// fcntl(2) failed, so it is unknown whether a process still has the member's handle. The
    /// socket is unchanged and its descriptor closed.
    Unknown(io::Error),
    /// The socket's filter can't be replaced, or its counters can't be read. The socket was closed.
    Uncounted(io::Error),
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StillHeld(_) => f.write_str("a forked child still has the member's handle"),
            Self::Unknown(error) => write!(f, "can't check whether the member is open: {error}"),
            Self::Uncounted(error) => write!(f, "can't read the member's last counters: {error}"),
        }
    }
}

impl std::error::Error for CloseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unknown(error) | Self::Uncounted(error) => Some(error),
            Self::StillHeld(_) => None,
        }
    }
}

/// Closes the socket of a member whose process has ended, so that the member leaves its group.
/// `socket` must be the last descriptor, from [`fanpcap_linux::process::pidfd::Process::socket`].
/// `page` is the member's page.
///
/// # Errors
/// [`CloseError`], for example when a child still has the member.
pub fn close_counting(page: &HeldPage, socket: OwnedFd) -> Result<ClosedSocket, CloseError> {
    Closing::begin(page, socket).map(Closing::finish)
}

/// A member that rejects and counts all its packets and has not left its group yet.
#[derive(Debug)]
pub struct Closing {
    socket: OwnedFd,
    id: MemberId,
    has_joined: bool,
    refused: Option<Map>,
    statistics: Statistics,
}

impl Closing {
    /// The first half of [`close_counting`]: rejects packets and reads the counters.
    ///
    /// # Errors
    /// As [`close_counting`].
    pub fn begin(page: &HeldPage, socket: OwnedFd) -> Result<Self, CloseError> {
        match page.is_had() {
            Ok(false) => Self::refuse(socket).map_err(CloseError::Uncounted),
            Ok(true) => Err(CloseError::StillHeld(socket)),
            Err(error) => Err(CloseError::Unknown(error)),
        }
    }

    fn refuse(socket: OwnedFd) -> io::Result<Self> {
        let id = MemberId::of_socket(packet::inode(socket.as_fd())?);
        let has_joined = is_in_a_group(id);
        let refused = refuse(socket.as_fd())?;
        bpf::wait_for_programs();
        let statistics = packet::take_statistics(socket.as_fd())?;
        Ok(Self {
            socket,
            id,
            has_joined,
            refused,
            statistics,
        })
    }

    /// Whether the member had entered its group. If a newcomer was killed before it entered, it
    /// received only copies of packets, and the group loses nothing.
    pub fn has_joined(&self) -> bool {
        self.has_joined
    }

    /// Packets rejected so far, if they are counted.
    pub fn refused(&self) -> Option<u64> {
        refused(self.refused.as_ref())
    }

    /// The second half of [`close_counting`]: closes the socket, so that the member leaves its
    /// group.
    pub fn finish(self) -> ClosedSocket {
        drop(self.socket);
        let counted = self.refused.filter(|_| is_still(self.id));
        ClosedSocket {
            received: self.statistics.packets.into(),
            dropped: self.statistics.drops.into(),
            refused: refused(counted.as_ref()),
        }
    }
}

fn refused(map: Option<&Map>) -> Option<u64> {
    map?.numbers().ok()?.first().copied()
}

/// Makes the socket reject all packets. Returns the map that counts these packets, if they can be
/// counted.
fn refuse(socket: BorrowedFd<'_>) -> io::Result<Option<Map>> {
    if let Ok(refused) = Map::array("refused", 1, 8) {
        let filter = LoadedProgram::refusing(&refused);
        if filter.is_ok_and(|filter| packet::attach_program(socket, filter.as_fd()).is_ok()) {
            return Ok(Some(refused));
        }
    }
    Filter::reject_all().attach(socket).map(|()| None)
}

/// Whether a socket is in a group; true if the kernel does not show the socket.
fn is_in_a_group(member: MemberId) -> bool {
    let in_group = |roster: Roster| {
        let socket = roster.find(member);
        socket.is_none_or(|socket| socket.fanout.is_some())
    };
    Roster::look().map_or(true, in_group)
}

/// Waits until the socket can't receive packets, and returns whether that is so: the kernel has
/// released the socket, or has removed its device. In the second case another member of the group
/// may keep a descriptor of the socket while it waits for the device.
fn is_still(member: MemberId) -> bool {
    let end = Instant::now() + GONE_WITHIN;
    loop {
        let Ok(roster) = Roster::look() else {
            return false;
        };
        let socket = roster.find(member);
        if socket.is_none_or(|socket| socket.has_lost_device()) {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

impl ClosedSocket {
    /// Packets that the member has lost. `page` is the member's page after its death. Returns
    /// `None` if the system's library read the member, because the number of packets taken is then
    /// unknown.
    pub fn lost(&self, page: &Record) -> Option<Lost> {
        let received = page.counters.received.saturating_add(self.received);
        let dropped = page.counters.dropped.saturating_add(self.dropped);
        let unread = received.saturating_sub(dropped).saturating_sub(page.taken?);
        Some(Lost {
            unread,
            dropped,
            refused: self.refused,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn what_is_neither_taken_nor_dropped_was_unread() {
        let closed = ClosedSocket {
            received: 7,
            dropped: 1,
            refused: Some(2),
        };
        // Received 10, dropped 3.
        let mut page = record();
        assert_eq!(closed.lost(&page), None);
        page.taken = Some(5);
        let lost = closed.lost(&page).unwrap();
        assert_eq!((lost.unread, lost.dropped, lost.refused), (8, 4, Some(2)));
    }
}
