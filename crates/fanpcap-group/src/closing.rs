//! Closing the socket of a member that has died, so that every packet it was given is accounted
//! for.
//!
//! While anybody has a descriptor of the socket, it stays in its group and is given its share.
//! Between the last reading of its counters and its leaving, packets would come that nobody counts:
//! so it refuses and counts them itself, by a program in its filter's place.

use crate::page::{HeldPage, MemberId};
use crate::record::Record;
use crate::roster::Roster;
use fanpcap_linux::bpf::{LoadedProgram, Map};
use fanpcap_linux::packet::{self, Filter, Statistics};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, io};

/// What a socket had counted when it was closed, since its counters were read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Packets that passed its filter, dropped ones included.
    pub received: u64,
    /// Of these, packets lost because its ring was full.
    pub dropped: u64,
    /// Packets that it was given and refused while it was being closed, also such as its own filter
    /// would not have let in. None where that can't be counted: without `CAP_BPF`, or as somebody
    /// else has the socket too.
    pub refused: Option<u64>,
}

/// Packets that went to a member in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// They were in its ring and it had not taken them.
    pub unread: u64,
    /// Its ring was full.
    pub dropped: u64,
    /// It was being closed; see [`Closed::refused`].
    pub refused: Option<u64>,
}

/// How long packets on their way take at most, where the kernel can't tell when they have arrived.
const IN_FLIGHT: Duration = Duration::from_millis(50);

/// How long the kernel may take to forget a socket that was closed.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// Why a member's socket can't be closed so that every packet is accounted for.
#[derive(Debug)]
pub enum CloseError {
    /// A forked child has the member and may read it: the socket is as it was. Try again when the
    /// child has ended, of which the page tells ([`HeldPage::is_had`]).
    StillHeld(OwnedFd),
    /// Whether anybody has it can't be told: fcntl(2) has failed. The socket was let go of as it
    /// was.
    Unknown(io::Error),
    /// Its filter can't be replaced, or its counters can't be read. It was closed.
    Uncounted(io::Error),
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StillHeld(_) => f.write_str("a child of the member's process still has it"),
            Self::Unknown(error) => write!(f, "whether anybody has the member: {error}"),
            Self::Uncounted(error) => write!(f, "the member's last counters: {error}"),
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

/// Closes the socket of a member whose process has ended. `socket` is the last descriptor of it, by
/// [`fanpcap_linux::process::pidfd::Process::socket`]; the member leaves its group by that. `page`
/// is the member's.
///
/// # Errors
/// When somebody has the member, or as [`CloseError`] tells.
pub fn close_counting(page: &HeldPage, socket: OwnedFd) -> Result<Closed, CloseError> {
    Closing::begin(page, socket).map(Closing::finish)
}

/// A member that refuses and counts what its group gives it, and has not left the group yet.
#[derive(Debug)]
pub struct Closing {
    socket: OwnedFd,
    id: MemberId,
    has_joined: bool,
    refused: Option<Map>,
    statistics: Statistics,
}

impl Closing {
    /// The first half of [`close_counting`].
    ///
    /// # Errors
    /// The same.
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
        if packet::await_packets_in_flight().is_err() {
            thread::sleep(IN_FLIGHT);
        }
        let statistics = packet::take_statistics(socket.as_fd())?;
        Ok(Self {
            socket,
            id,
            has_joined,
            refused,
            statistics,
        })
    }

    /// Whether the member had entered its group. One that was killed before that is bound to its
    /// device already: it is given copies of the packets, and the group lacks none of them.
    pub fn has_joined(&self) -> bool {
        self.has_joined
    }

    /// Packets that it has refused so far, where they are counted.
    pub fn refused(&self) -> Option<u64> {
        refused(self.refused.as_ref())
    }

    /// The second half: the member leaves its group.
    pub fn finish(self) -> Closed {
        drop(self.socket);
        let counted = self.refused.filter(|_| is_gone(self.id));
        Closed {
            received: self.statistics.packets.into(),
            dropped: self.statistics.drops.into(),
            refused: refused(counted.as_ref()),
        }
    }
}

fn refused(map: Option<&Map>) -> Option<u64> {
    map?.numbers().ok()?.first().copied()
}

/// Lets no packet into a socket from now on. Returns where they are counted, if they are.
fn refuse(socket: BorrowedFd<'_>) -> io::Result<Option<Map>> {
    if let Ok(refused) = Map::array("refused", 1, 8) {
        let filter = LoadedProgram::refusing(&refused);
        if filter.is_ok_and(|filter| packet::attach_program(socket, filter.as_fd()).is_ok()) {
            return Ok(Some(refused));
        }
    }
    Filter::reject_all().attach(socket).map(|()| None)
}

/// Whether a socket is in a group; also where the kernel does not tell.
fn is_in_a_group(member: MemberId) -> bool {
    let in_group = |roster: Roster| {
        let socket = roster.find(member);
        socket.is_none_or(|socket| socket.fanout.is_some())
    };
    Roster::look().map_or(true, in_group)
}

/// Waits until the kernel has forgotten a socket: it can't be given any packet then.
fn is_gone(member: MemberId) -> bool {
    let end = Instant::now() + GONE_WITHIN;
    loop {
        let Ok(roster) = Roster::look() else {
            return false;
        };
        if roster.find(member).is_none() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

impl Closed {
    /// What the member has lost, by what its page said after its death. None when the system's
    /// library has read it: nobody knows then how far.
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
        let closed = Closed {
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
