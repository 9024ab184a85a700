//! A coordinator's side of the control protocol: which coordinator leads, which nodes are alive,
//! and which topology the cluster has.
//!
//! One coordinator **leads**, the others stand by. If several lead, nodes follow the one with the
//! greatest term, because a revision contains the term, and a node follows the greatest revision.

mod members;
mod election;
mod synchronisation;
mod knowledge;
mod contact;
mod requests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::body::{Body, Leader, State};
use super::endpoint::{Endpoint, Incoming};
use super::envelope::{Cause, Peer, Role};
use super::outbox::Outbox;
use crate::coordination::{DesiredState, View, WriteError};
use crate::identity::{NodeId, Revision};
use crate::topology::Topology;

use election::{Election, ElectionRole};
use knowledge::Knowledge;
use members::Members;
pub use members::Refused;

/// A coordinator's number, addresses and times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoordinatorSettings {
    /// This coordinator's number, below 16. No other coordinator of the cluster has this number.
    pub number: u8,
    /// The address at which other processes reach this coordinator.
    pub address: SocketAddr,
    /// The other coordinators.
    pub others: Vec<SocketAddr>,
    /// The multicast address of announcements, for nodes that don't know the active coordinator.
    pub multicast: Option<SocketAddr>,
    /// The desired state. Its drained nodes and weights count only until a state is stored.
    pub desired: DesiredState,
    /// The time between pulses of the active coordinator.
    pub pulse: Duration,
    /// A standby that hears no pulse for this time starts an election.
    pub silence: Duration,
    /// How long a standby that wants to lead waits for objections of other coordinators.
    pub ballot: Duration,
    /// The time between multicast announcements, and between a node's heartbeats.
    pub announce: Duration,
    /// A node that is silent for this time is offline (the paper: 15 s).
    pub offline: Duration,
    /// How long a new leader waits for nodes before it plans. This wait must be longer than the
    /// time between a node's attempts to join. If the leader knows nodes, the wait begins when the
    /// leader hears the first of these nodes, and ends early when the leader has heard all of them.
    /// If a node follows a newer topology than the leader's, the leader waits up to `offline` for
    /// that topology.
    pub settle: Duration,
    /// How long the leader waits for an acknowledgement before it sends the topology again.
    pub retry: Duration,
}

impl CoordinatorSettings {
    /// The settings of the coordinator `number` at `address`, with the paper's times.
    pub fn new(number: u8, address: SocketAddr) -> Self {
        Self {
            number,
            address,
            others: Vec::new(),
            multicast: None,
            desired: DesiredState::default(),
            pulse: Duration::from_secs(1),
            silence: Duration::from_secs(3),
            ballot: Duration::from_secs(1),
            announce: Duration::from_secs(5),
            offline: Duration::from_secs(15),
            settle: Duration::from_secs(2),
            retry: Duration::from_millis(500),
        }
    }
}

/// A coordinator's side of the control protocol.
#[derive(Debug)]
pub struct CoordinatorEnd {
    settings: CoordinatorSettings,
    endpoint: Endpoint,
    outbox: Outbox,
    election: Election,
    /// The other coordinators, by their addresses.
    peers: BTreeMap<SocketAddr, Peer>,
    knowledge: Knowledge,
    members: Members,
    /// When [`Self::tick`] was last called.
    ticked: Duration,
    view: View,
    /// Notes for the operator, sent with the status.
    notes: Vec<String>,
}

impl CoordinatorEnd {
    /// A coordinator that stands by, with the state that it stored before it was restarted.
    pub fn new(
        now: Duration,
        settings: CoordinatorSettings,
        endpoint: Endpoint,
        stored: Option<State>,
    ) -> Self {
        let first = || State {
            desired: settings.desired.clone(),
            ..State::default()
        };
        let knowledge = Knowledge::new(stored.unwrap_or_else(first));
        Self {
            endpoint,
            outbox: Outbox::default(),
            election: Election::new(now, knowledge.term()),
            peers: BTreeMap::new(),
            knowledge,
            members: Members::default(),
            ticked: now,
            view: View::default(),
            notes: Vec::new(),
            settings,
        }
    }

    /// The next datagram to send, and its receiver. Returns `None` while a state must be
    /// [stored](Self::to_store), so that a crash can't lose a state that other participants have.
    pub fn outgoing(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        match self.knowledge.is_stored() {
            true => self.outbox.take(),
            false => None,
        }
    }

    /// The topology's revision, while this version can't read the topology. Then this coordinator
    /// plans nothing, and stands for election only if no other coordinator has led for a while.
    pub fn unreadable(&self) -> Option<Revision> {
        self.knowledge.unreadable()
    }

    /// Whether this coordinator leads, and knows and can read the topology that the nodes follow.
    fn plans(&self, now: Duration) -> bool {
        self.election.is_settled(now) && self.unreadable().is_none()
    }

    /// The active coordinator, as far as this coordinator knows.
    pub fn leader(&self) -> Option<Leader> {
        self.election.known
    }

    /// The number of datagrams that were refused because of `cause`.
    pub fn refused(&self, cause: Cause) -> u64 {
        self.endpoint.refused(cause)
    }

    /// How many messages were refused for each cause, by the cause's name.
    pub fn all_refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.endpoint.all_refused().map(|(_, count)| count);
        Cause::NAMES.into_iter().zip(counts)
    }

    /// The endpoint, whose keys can be changed.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// The state that must be stored now, to be read after a restart; `None` if it is stored
    /// already. After an attempt, call [`Self::note_stored`] or [`Self::note_store_failure`].
    pub fn to_store(&self) -> Option<State> {
        (!self.knowledge.is_stored()).then(|| self.current_state())
    }

    /// Notes that this state is stored.
    pub fn note_stored(&mut self, state: &State) {
        self.knowledge.note_stored(state);
    }

    /// Notes that the state could not be stored. Drops the waiting datagrams, because the protocol
    /// repeats important messages. Without a stored state, this coordinator does not lead.
    pub fn note_store_failure(&mut self) {
        self.outbox = Outbox::default();
    }

    /// What this coordinator knows of the cluster. [Store its state](Self::to_store) first: until
    /// then, the view does not say that this coordinator leads.
    pub fn view(&mut self, now: Duration) -> &View {
        let state = &self.knowledge.state;
        self.view.leads = self.plans(now) && self.knowledge.is_stored();
        self.view.live = self.members.live();
        self.view.desired.clone_from(&state.desired);
        let revision =
            |stands: &Option<(Revision, _)>| stands.as_ref().map(|(revision, _)| *revision);
        if revision(&self.view.topology) != revision(&state.topology) {
            self.view.topology.clone_from(&state.topology);
        }
        self.view.is_outrun = self.members.newest() > self.knowledge.revision();
        &self.view
    }

    /// Makes `topology` the cluster's topology, if the present topology still has the revision
    /// `replaces`.
    ///
    /// # Errors
    /// Fails with the reason why the topology is not written.
    pub fn write(
        &mut self,
        now: Duration,
        topology: &Topology,
        replaces: Option<Revision>,
    ) -> Result<Revision, WriteError> {
        let ElectionRole::Leading { leader, .. } = &self.election.role else {
            return Err(WriteError::NotLeading);
        };
        if self.unreadable().is_some() {
            return Err(WriteError::NotLeading);
        }
        if !self.knowledge.is_stored() {
            return Err(WriteError::Unstored);
        }
        if self.knowledge.revision() != replaces {
            return Err(WriteError::Changed);
        }
        let why = "the control protocol refuses this topology: no node could follow it";
        let unfit = || WriteError::Engine(why.into());
        topology.check().map_err(|_| unfit())?;
        let last = replaces.max(self.members.newest());
        let revision = leader.term.after(last, self.endpoint.begin());
        let revision = revision.ok_or_else(unfit)?;
        self.stand(now, revision, Box::new(topology.clone()));
        self.synchronise_all();
        self.deliver(now);
        Ok(revision)
    }

    /// Makes `topology` the cluster's topology.
    fn stand(&mut self, now: Duration, revision: Revision, topology: Box<Topology>) {
        self.knowledge.stand(revision, topology);
        self.members.expect_all(now);
    }

    /// Sends the messages and makes the changes that are due at the time `now`.
    pub fn tick(&mut self, now: Duration) {
        self.excuse_pause(now);
        match &self.election.role {
            ElectionRole::Standby { heard } => self.stand_by(now, *heard),
            ElectionRole::Candidate { leader, until } => {
                if now >= *until {
                    self.lead(now, *leader);
                }
            }
            ElectionRole::Leading { .. } if !self.is_in_touch(now) => self.resign(now),
            ElectionRole::Leading { .. } => {
                self.expire(now);
                self.deliver(now);
                self.pulse(now);
            }
        }
    }

    /// When [`CoordinatorEnd::tick`] is due at the latest.
    pub fn wake(&self) -> Duration {
        match &self.election.role {
            ElectionRole::Standby { heard } => self.question_at(*heard),
            ElectionRole::Candidate { until, .. } => *until,
            ElectionRole::Leading { .. } => {
                self.next_delivery().map_or(self.election.pulse_at, |next| {
                    next.min(self.election.pulse_at)
                })
            }
        }
    }

    /// Takes a datagram.
    ///
    /// # Errors
    /// Fails with the cause if the datagram is refused, and counts the refusal.
    pub fn receive(&mut self, now: Duration, from: SocketAddr, bytes: &[u8]) -> Result<(), Cause> {
        let incoming = self.endpoint.open(now, bytes)?;
        self.note_heard(now, &incoming);
        self.endpoint.check_term(&incoming, self.election.term)?;
        match incoming {
            // Another process has this coordinator's number, so its message is ignored.
            Incoming::New(peer, _) | Incoming::Challenged(peer) | Incoming::Unreadable(peer, _)
                if peer == self.endpoint.me() => {}
            Incoming::New(peer, body) => match peer.role {
                Role::Node => self.hear_node(now, (from, peer), body),
                Role::Coordinator => self.hear_coordinator(now, (from, peer), body),
                Role::Operator => self.hear_operator(now, (from, peer), body),
            },
            Incoming::Challenged(peer) => self.say_again(now, from, peer),
            Incoming::Unreadable(peer, revision) => self.hear_unreadable(now, peer, revision),
            Incoming::Answer(datagram) => self.outbox.put(from, datagram),
            Incoming::Hint(_) | Incoming::Nothing => {}
        }
        Ok(())
    }

    fn say(&mut self, (to, peer): (SocketAddr, Peer), body: &Body, transfer: u32) {
        let to = (to, Some(peer));
        self.outbox.say(&mut self.endpoint, to, body, transfer);
    }

    /// Responds to a challenge: sends the challenged message again.
    fn say_again(&mut self, now: Duration, from: SocketAddr, peer: Peer) {
        match peer.role {
            Role::Coordinator => {
                let body = self.message();
                self.peers.insert(from, peer);
                if let Some(body) = body {
                    self.say((from, peer), &body, 0);
                }
            }
            Role::Node => {
                self.members.expect(NodeId(peer.id), now);
                self.deliver(now);
            }
            Role::Operator => {}
        }
    }
}
