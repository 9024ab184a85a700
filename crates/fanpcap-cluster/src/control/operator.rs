//! A command's side of the control protocol: one request, and the active coordinator's reply.

use std::net::SocketAddr;
use std::time::Duration;

use super::body::{Body, OperatorChange, Status, TooManyChanges};
use super::endpoint::{Endpoint, Incoming};
use super::envelope::{Cause, Peer, Role};
use super::outbox::Outbox;
use crate::identity::Revision;

const RETRY: Duration = Duration::from_millis(500);

/// A command's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Asks for the cluster's status.
    Status,
    /// Asks for this change.
    OperatorChange(OperatorChange),
}

/// The active coordinator's reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The cluster's status.
    Status(Box<Status>),
    /// The change was made.
    Granted,
    /// The change was refused.
    Refused(TooManyChanges),
    /// The status has a topology of this revision that this version can't read.
    Unreadable(Revision),
}

/// A command's side of the control protocol.
#[derive(Debug)]
pub struct OperatorEnd {
    coordinators: Vec<SocketAddr>,
    endpoint: Endpoint,
    request: Body,
    reply: Option<Reply>,
    next: Duration,
    outbox: Outbox,
}

impl OperatorEnd {
    /// A command that is sent to all of these coordinators. The one that leads answers.
    pub fn new(coordinators: Vec<SocketAddr>, endpoint: Endpoint, request: Request) -> Self {
        let request = match request {
            Request::Status => Body::Query,
            Request::OperatorChange(change) => Body::OperatorChange(change),
        };
        Self {
            coordinators,
            endpoint,
            request,
            reply: None,
            next: Duration::ZERO,
            outbox: Outbox::default(),
        }
    }

    /// The reply, when it has come.
    pub fn reply(&mut self) -> Option<Reply> {
        self.reply.take()
    }

    /// The next datagram to send, and its receiver.
    pub fn outgoing(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.outbox.take()
    }

    /// When [`OperatorEnd::tick`] is due.
    pub fn wake(&self) -> Duration {
        self.next
    }

    /// Sends the request again, if that is due.
    pub fn tick(&mut self, now: Duration) {
        if now >= self.next {
            self.next = now + RETRY;
            for address in self.coordinators.clone() {
                self.ask((address, None));
            }
        }
    }

    fn ask(&mut self, to: (SocketAddr, Option<Peer>)) {
        self.outbox.say(&mut self.endpoint, to, &self.request, 0);
    }

    /// Takes a datagram.
    ///
    /// # Errors
    /// Fails if the datagram is refused.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "this role drops all other messages"
    )]
    pub fn receive(&mut self, now: Duration, from: SocketAddr, bytes: &[u8]) -> Result<(), Cause> {
        match self.endpoint.open(now, bytes)? {
            Incoming::New(peer, body) if peer.role == Role::Coordinator => match body {
                Body::Status(status) => self.reply = Some(Reply::Status(status)),
                Body::Acknowledge(_) => self.reply = Some(Reply::Granted),
                Body::Refuse(..) => self.reply = Some(Reply::Refused(TooManyChanges)),
                Body::Announce(leader) if !self.coordinators.contains(&leader.address) => {
                    let id = u32::from(leader.number);
                    let role = Role::Coordinator;
                    self.coordinators.truncate(64);
                    self.coordinators.push(leader.address);
                    self.ask((leader.address, Some(Peer { role, id })));
                }
                _ => {}
            },
            Incoming::Challenged(peer) => self.ask((from, Some(peer))),
            Incoming::Answer(datagram) => self.outbox.put(from, datagram),
            Incoming::Unreadable(peer, revision) if peer.role == Role::Coordinator => {
                self.reply = Some(Reply::Unreadable(revision));
            }
            Incoming::New(..)
            | Incoming::Unreadable(..)
            | Incoming::Hint(_)
            | Incoming::Nothing => {}
        }
        Ok(())
    }
}
