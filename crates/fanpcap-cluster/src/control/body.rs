//! The contents of control messages.

mod topology;
mod member;
mod desired;
mod state;

use std::net::SocketAddr;

use super::avp::{Avp, COORDINATOR, List, code};
use super::fields::{BodyError, Fields};
use super::message::Kind;
use super::term::Term;
use crate::coordination::{Announcement, Refusal};
use crate::identity::{NodeId, Revision};
use crate::topology::Topology;

pub use desired::{OperatorChange, TooManyChanges};
pub use state::{State, Status};

/// The contents of a control message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// A node wants to join.
    Join(Member),
    /// The coordinator accepts this node, or has heard its heartbeat.
    Accept(NodeId, Leader),
    /// The topology of this revision.
    TopologyUpdate(Revision, Box<Topology>),
    /// A node is alive.
    Heartbeat(Member, Term),
    /// Refuses a node. Sent to the operator: there are too many changes of this kind.
    Refuse(NodeId, Refusal),
    /// Names the active coordinator.
    Announce(Leader),
    /// The message with this session and sequence may be a repeat: its sender must send it again.
    Challenge([u64; 2]),
    /// A node captures by the topology of this revision. Sent to the operator: the change is made.
    Acknowledge(u64),
    /// This node leaves.
    Leave(NodeId),
    /// The receiver must send its topology.
    Fetch,
    /// The active coordinator is alive. The number says how often the state for standbys changed.
    Pulse(Leader, u32),
    /// The state that a standby needs to become the active coordinator.
    Synchronise(Box<State>),
    /// A coordinator stands by and knows of this term. By this message a standby answers a pulse,
    /// or asks other participants to answer. A leader that resigns sends this message, too.
    Standby(Term),
    /// A standby that has the topology of this revision wants to become the active coordinator.
    Elect(Leader, Revision),
    /// A change by the operator.
    OperatorChange(OperatorChange),
    /// The operator asks for the cluster's status.
    Query,
    /// The cluster's status.
    Status(Box<Status>),
}

/// A node's announcement, and the topology that it follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The announcement.
    pub announcement: Announcement,
    /// The newest topology that the node captures by.
    pub follows: Option<Revision>,
}

/// An active coordinator, or a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leader {
    /// The coordinator's number, below 16.
    pub number: u8,
    /// The coordinator's term.
    pub term: Term,
    /// The coordinator's address.
    pub address: SocketAddr,
}

impl Leader {
    fn write<'a>(&self, to: &'a mut List) -> &'a mut List {
        to.put(code::COORDINATOR_ID, u32::from(self.number))
            .put(code::TERM, self.term.0)
            .put_address(COORDINATOR, self.address)
    }

    fn read(from: Fields<'_>) -> Result<Self, BodyError> {
        let number = u8::try_from(from.one(code::COORDINATOR_ID)?);
        let number = number.ok().filter(|number| *number < super::COORDINATORS);
        Ok(Self {
            number: number.ok_or(BodyError::Value(code::COORDINATOR_ID))?,
            term: Term(from.one(code::TERM)?),
            address: from.address(COORDINATOR)?,
        })
    }
}

const REFUSALS: [Refusal; 3] = [Refusal::TakenId, Refusal::Full, Refusal::Version];

fn refusal(number: u32) -> Result<Refusal, BodyError> {
    let mut all = REFUSALS.into_iter();
    let found = all.find(|refusal| *refusal as u32 == number);
    found.ok_or(BodyError::Value(code::REFUSAL))
}

impl Body {
    /// The type of the message that carries this body.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Join(..) => Kind::Join,
            Self::Accept(..) => Kind::Accept,
            Self::TopologyUpdate(..) => Kind::TopologyUpdate,
            Self::Heartbeat(..) => Kind::Heartbeat,
            Self::Refuse(..) => Kind::Refuse,
            Self::Announce(..) => Kind::Announce,
            Self::Challenge(..) => Kind::Challenge,
            Self::Acknowledge(..) => Kind::Acknowledge,
            Self::Leave(..) => Kind::Leave,
            Self::Fetch => Kind::Fetch,
            Self::Pulse(..) => Kind::Pulse,
            Self::Synchronise(..) => Kind::Synchronise,
            Self::Standby(..) => Kind::Standby,
            Self::Elect(..) => Kind::Elect,
            Self::OperatorChange(..) => Kind::OperatorChange,
            Self::Query => Kind::Query,
            Self::Status(..) => Kind::Status,
        }
    }

    /// The greatest term in this body; the lowest possible term if the body has none.
    pub(super) fn term(&self) -> Term {
        let of = |follows: Option<Revision>| follows.map(Term::of).unwrap_or_default();
        match self {
            Self::Join(member) => of(member.follows),
            Self::Heartbeat(member, term) => of(member.follows).max(*term),
            Self::Standby(term) => *term,
            Self::Accept(_, leader) | Self::Announce(leader) | Self::Pulse(leader, _) => {
                leader.term
            }
            Self::Elect(leader, revision) => leader.term.max(Term::of(*revision)),
            Self::TopologyUpdate(revision, _) => Term::of(*revision),
            Self::Acknowledge(number) => Term::of(Revision(*number)),
            Self::Synchronise(state) => {
                let topology = state.topology.as_ref().map(|(revision, _)| *revision);
                let follows = state.members.iter().map(|member| of(member.follows));
                follows.fold(state.term.max(of(topology)), Term::max)
            }
            Self::Refuse(..)
            | Self::Challenge(_)
            | Self::Leave(_)
            | Self::Fetch
            | Self::OperatorChange(_)
            | Self::Query
            | Self::Status(_) => Term::default(),
        }
    }

    /// The list of AVPs that carries this body. This list may be too long for one message.
    pub fn list(&self) -> Vec<Avp> {
        let mut to = List::default();
        match self {
            Self::Join(member) => member.write(&mut to),
            Self::Heartbeat(member, term) => member.write(&mut to).put(code::TERM, term.0),
            Self::Accept(node, leader) => leader.write(to.put(code::NODE_ID, node.0)),
            Self::Refuse(node, refusal) => to
                .put(code::NODE_ID, node.0)
                .put(code::REFUSAL, *refusal as u32),
            Self::Leave(node) => to.put(code::NODE_ID, node.0),
            Self::TopologyUpdate(revision, topology) => {
                topology::write(&mut to, *revision, topology)
            }
            Self::Announce(leader) => leader.write(&mut to),
            Self::Acknowledge(number) => to.put_wide(code::STATE, *number),
            Self::Pulse(leader, state) => leader.write(&mut to).put(code::STATE, *state),
            Self::Standby(term) => to.put(code::TERM, term.0),
            Self::Elect(leader, revision) => {
                leader.write(&mut to).put_wide(code::FOLLOWS, revision.0)
            }
            Self::Synchronise(state) => state.write(&mut to),
            Self::OperatorChange(change) => change.write(&mut to),
            Self::Status(status) => status.write(&mut to),
            Self::Challenge([session, sequence]) => to
                .put_wide(code::CHALLENGED, *session)
                .put_wide(code::CHALLENGED, *sequence),
            Self::Fetch | Self::Query => &mut to,
        };
        to.0
    }

    /// Reads the list of a message of type `kind`.
    ///
    /// # Errors
    /// Fails if an AVP is missing, or has a value that is not allowed.
    pub fn read(kind: Kind, list: &[Avp]) -> Result<Self, BodyError> {
        let from = Fields(list);
        let node = || from.one(code::NODE_ID).map(NodeId);
        Ok(match kind {
            Kind::Join => Self::Join(Member::read(from)?),
            Kind::Heartbeat => Self::Heartbeat(Member::read(from)?, Term(from.one(code::TERM)?)),
            Kind::Accept => Self::Accept(node()?, Leader::read(from)?),
            Kind::Refuse => Self::Refuse(node()?, refusal(from.one(code::REFUSAL)?)?),
            Kind::Leave => Self::Leave(node()?),
            Kind::TopologyUpdate => {
                let (revision, topology) = topology::read(from)?;
                Self::TopologyUpdate(revision, Box::new(topology))
            }
            Kind::Announce => Self::Announce(Leader::read(from)?),
            Kind::Acknowledge => Self::Acknowledge(from.wide(code::STATE)?),
            Kind::Pulse => Self::Pulse(Leader::read(from)?, from.one(code::STATE)?),
            Kind::Standby => Self::Standby(Term(from.one(code::TERM)?)),
            Kind::Elect => Self::Elect(Leader::read(from)?, Revision(from.wide(code::FOLLOWS)?)),
            Kind::Synchronise => Self::Synchronise(Box::new(State::read(from)?)),
            Kind::OperatorChange => Self::OperatorChange(OperatorChange::read(from)?),
            Kind::Status => Self::Status(Box::new(Status::read(from)?)),
            Kind::Challenge => Self::Challenge(from.wides(code::CHALLENGED)?),
            Kind::Fetch => Self::Fetch,
            Kind::Query => Self::Query,
        })
    }
}
