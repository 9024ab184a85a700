//! The messages that a change of a group sends to its members.

use crate::shared::Shared;
use fanpcap_poll::message::{Answer, Takeover};
use std::os::fd::{AsFd, BorrowedFd};

/// A message to a member.
#[derive(Debug)]
pub struct Notice {
    /// The member that gets the message.
    pub to: u64,
    /// What the message says.
    pub what: Told,
}

/// What a message to a member says.
#[derive(Debug)]
pub enum Told {
    /// It shall take no packets ([`Answer::Hold`]).
    Hold,
    /// It shall read the pool of a member that is gone. The message carries the pool's descriptor.
    Takeover(Takeover, Shared),
    /// It shall take packets again ([`Answer::GoOn`]).
    GoOn,
}

impl Notice {
    /// The message.
    pub(crate) fn answer(&self) -> Answer {
        match &self.what {
            Told::Hold => Answer::Hold,
            Told::Takeover(takeover, _) => Answer::Takeover(*takeover),
            Told::GoOn => Answer::GoOn,
        }
    }

    /// The descriptor that the message carries.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.what {
            Told::Takeover(_, pool) => Some(pool.as_fd()),
            Told::Hold | Told::GoOn => None,
        }
    }
}
