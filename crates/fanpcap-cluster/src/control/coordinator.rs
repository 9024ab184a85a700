//! A coordinator's side of the control protocol: who leads, who is alive, and what all have to
//! know.
//!
//! One coordinator **leads**, the others stand by. The one of the greatest term counts, whatever
//! others believe: a term is part of every revision, and a node follows the greatest revision.

mod members;
mod behind;
mod election;
mod requests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::body::{Body, Leader, State};
use super::endpoint::{Cause, Endpoint, Incoming};
use super::envelope::{Peer, Role};
use super::outbox::Outbox;
use super::term::Term;
use crate::coordination::{Refusal, View, Wishes};
use crate::identity::{NodeId, Revision};
use crate::topology::Topology;

pub use behind::Trouble;
use election::Stance;
use members::Presence;

/// Who a coordinator is, and how long it waits for what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoordinatorSettings {
    /// Its number, below 16 and its own among the cluster's coordinators.
    pub number: u8,
    /// Where others reach it.
    pub address: SocketAddr,
    /// The other coordinators.
    pub others: Vec<SocketAddr>,
    /// Where the active coordinator is announced to nodes that don't know it.
    pub multicast: Option<SocketAddr>,
    /// Selection and analyzers, and the wishes that hold until the operator changes them.
    pub wishes: Wishes,
    /// Between pulses of the active coordinator.
    pub pulse: Duration,
    /// A standby that hears no pulse for so long starts an election.
    pub silence: Duration,
    /// How long a standby that wants to lead waits for others that object.
    pub ballot: Duration,
    /// Between multicast announcements.
    pub announce: Duration,
    /// A node that is silent for so long is offline (the paper: 15 s).
    pub offline: Duration,
    /// How long a coordinator that begins to lead waits for nodes before its view leads: longer
    /// than nodes without a coordinator wait between attempts. If it knows nodes, it waits from
    /// when it has heard the first of them, and no longer than until it has heard all.
    pub settle: Duration,
    /// How long a topology update waits for the acknowledgement before it is sent again.
    pub retry: Duration,
    /// How long nodes are asked for a newer topology than the coordinator knows. Then it plans
    /// without: no node has it in memory any more.
    pub recall: Duration,
}

impl CoordinatorSettings {
    /// The settings of the coordinator `number` at `address`, with the paper's times.
    pub fn new(number: u8, address: SocketAddr) -> Self {
        Self {
            number,
            address,
            others: Vec::new(),
            multicast: None,
            wishes: Wishes::default(),
            pulse: Duration::from_secs(1),
            silence: Duration::from_secs(3),
            ballot: Duration::from_secs(1),
            announce: Duration::from_secs(5),
            offline: Duration::from_secs(15),
            settle: Duration::from_secs(2),
            retry: Duration::from_millis(500),
            recall: Duration::from_secs(60),
        }
    }
}

/// Why a topology was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteRefused {
    /// This coordinator does not lead.
    NotLeading,
    /// The cluster's topology is another than the one to replace.
    Changed,
    /// What this coordinator knows can't be stored.
    Unstored,
    /// The term has given all its revisions, or the topology is none that nodes can follow.
    Unfit,
}

impl fmt::Display for WriteRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeading => write!(f, "this coordinator does not lead"),
            Self::Changed => write!(f, "the cluster's topology has changed in the meantime"),
            Self::Unstored => write!(f, "the coordinator's file can't be written"),
            Self::Unfit => write!(f, "no node could follow the topology"),
        }
    }
}

impl std::error::Error for WriteRefused {}

/// A coordinator's side of the control protocol.
#[derive(Debug)]
pub struct CoordinatorEnd {
    settings: CoordinatorSettings,
    endpoint: Endpoint,
    outbox: Outbox,
    stance: Stance,
    /// The greatest term of a coordinator that led.
    term: Term,
    /// The active coordinator.
    known: Option<Leader>,
    /// When that one was last heard.
    pulsed: Option<Duration>,
    /// Whether it has the term that counted last, from a file or from another coordinator.
    remembers: bool,
    /// The time since 1970 when it began, and what `now` was then.
    clock: Duration,
    began: Duration,
    /// Who answers at which of the other coordinators' addresses.
    peers: BTreeMap<SocketAddr, Peer>,
    /// What standbys are told. Its members are those of the last synchronisation.
    state: State,
    members: BTreeMap<NodeId, Presence>,
    /// Whether the active coordinator has yet to be shown a newer topology than its own.
    shows: bool,
    /// Whether it leads, and knew nodes when it began to.
    inherits: bool,
    /// Whether it leads, and nodes were sent the topology that it knows when it last looked.
    gives: bool,
    /// Machines that were refused a short time ago, and when.
    refusals: BTreeMap<(NodeId, SocketAddr), (Refusal, Duration)>,
    /// When a term was last refused that no coordinator can have, if that was a short time ago.
    ahead: Option<Duration>,
    /// Numbers the lists that this process sends. It only grows, unlike the state's number.
    transfers: u32,
    /// The number that the topology has among them.
    transfer: u32,
    view: View,
    /// Notes for the operator, sent with the status.
    notes: Vec<String>,
    stored: (Term, u32),
    /// Whether what is to be stored could not be.
    is_mute: bool,
    /// The newest revision of a live node that this coordinator does not know, and since when.
    unknown: Option<(Revision, Duration)>,
    /// The newest revision that nobody had to show. It is planned without.
    forgotten: Option<Revision>,
    pulse_at: Duration,
    announce_at: Duration,
}

impl CoordinatorEnd {
    /// A coordinator that stands by, with what it has stored in an earlier life. `clock` is the
    /// time since 1970.
    pub fn new(
        now: Duration,
        clock: Duration,
        settings: CoordinatorSettings,
        endpoint: Endpoint,
        stored: Option<State>,
    ) -> Self {
        let remembers = stored.is_some();
        let first = || State {
            wishes: settings.wishes.clone(),
            ..State::default()
        };
        let state = stored.unwrap_or_else(first);
        let topologies_term = state
            .topology
            .as_ref()
            .map(|(revision, _)| Term::of(*revision));
        Self {
            endpoint,
            outbox: Outbox::default(),
            stance: Stance::Standby { heard: now },
            term: state.term.max(topologies_term.unwrap_or_default()),
            known: None,
            pulsed: None,
            remembers,
            clock,
            began: now,
            peers: BTreeMap::new(),
            stored: (state.term, state.number),
            is_mute: false,
            unknown: None,
            forgotten: None,
            state,
            members: BTreeMap::new(),
            shows: false,
            inherits: false,
            gives: false,
            refusals: BTreeMap::new(),
            ahead: None,
            transfers: 0,
            transfer: 0,
            view: View::default(),
            notes: Vec::new(),
            pulse_at: now,
            announce_at: now,
            settings,
        }
    }

    /// The next datagram to send, and where to. There is none while something is [to be
    /// stored](Self::to_store): no other process may learn of a state that a crash would undo.
    pub fn outgoing(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        match self.is_stored() {
            true => self.outbox.take(),
            false => None,
        }
    }

    /// The active coordinator, as far as this one knows.
    pub fn leader(&self) -> Option<Leader> {
        self.known
    }

    /// How many datagrams were not taken for this cause.
    pub fn refused(&self, cause: Cause) -> u64 {
        self.endpoint.refused(cause)
    }

    /// The endpoint, to change its keys.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// What to store now, so that it is there in the next life; `None`: nothing new. Then say
    /// [`Self::stored`] or [`Self::not_stored`].
    pub fn to_store(&self) -> Option<State> {
        (!self.is_stored()).then(|| self.told())
    }

    /// Notes that this is stored.
    pub fn stored(&mut self, state: &State) {
        self.stored = (state.term, state.number);
        self.is_mute = false;
    }

    /// Notes that what is to be stored could not be. What waits to be sent is dropped: the protocol
    /// repeats what matters. This coordinator does not lead until the state is stored.
    pub fn not_stored(&mut self) {
        self.is_mute = true;
        self.outbox = Outbox::default();
    }

    fn is_stored(&self) -> bool {
        (self.state.term, self.state.number) == self.stored
    }

    /// What this coordinator knows of the cluster.
    pub fn view(&mut self, now: Duration) -> &View {
        self.view.leads = self.is_settled(now) && !self.is_mute && !self.is_behind();
        self.view.live = self.members.values().map(Presence::live).collect();
        self.view.wishes.clone_from(&self.state.wishes);
        let revision =
            |stands: &Option<(Revision, _)>| stands.as_ref().map(|(revision, _)| *revision);
        if revision(&self.view.topology) != revision(&self.state.topology) {
            self.view.topology.clone_from(&self.state.topology);
        }
        self.view.is_outrun = self.forgotten > self.revision();
        &self.view
    }

    /// Makes this the cluster's topology, if it still is the one of revision `replaces`.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn write(
        &mut self,
        now: Duration,
        topology: &Topology,
        replaces: Option<Revision>,
    ) -> Result<Revision, WriteRefused> {
        let Stance::Leading { leader, .. } = &self.stance else {
            return Err(WriteRefused::NotLeading);
        };
        if self.is_mute {
            return Err(WriteRefused::Unstored);
        }
        if self.revision() != replaces {
            return Err(WriteRefused::Changed);
        }
        topology.check().map_err(|_| WriteRefused::Unfit)?;
        let last = replaces.max(self.forgotten);
        let revision = leader.term.after(last, self.endpoint.begin());
        let revision = revision.ok_or(WriteRefused::Unfit)?;
        self.stand(now, revision, Box::new(topology.clone()));
        self.synchronise_all();
        self.deliver(now);
        Ok(revision)
    }

    /// Takes this for the cluster's topology.
    fn stand(&mut self, now: Duration, revision: Revision, topology: Box<Topology>) {
        self.state.topology = Some((revision, topology));
        self.changed();
        self.transfer = self.transfers;
        for presence in self.members.values_mut() {
            presence.expect(now);
        }
    }

    /// The revision of the cluster's topology.
    fn revision(&self) -> Option<Revision> {
        self.state.topology.as_ref().map(|(revision, _)| *revision)
    }

    /// Counts a change of what standbys are told.
    fn changed(&mut self) {
        self.state.number = self.state.number.wrapping_add(1);
        self.transfers = self.transfers.wrapping_add(1);
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) {
        match &self.stance {
            Stance::Standby { heard } => {
                if now >= *heard + self.patience() {
                    self.stand_for_election(now);
                }
            }
            Stance::Candidate { leader, until } => {
                if now >= *until {
                    self.lead(now, *leader);
                }
            }
            Stance::Leading { .. } => {
                self.expire(now);
                self.look_behind(now);
                self.deliver(now);
                self.pulse(now);
            }
        }
    }

    /// When [`CoordinatorEnd::tick`] is due at the latest.
    pub fn wake(&self) -> Duration {
        match &self.stance {
            Stance::Standby { heard } => *heard + self.patience(),
            Stance::Candidate { until, .. } => *until,
            Stance::Leading { .. } => self
                .next_delivery()
                .map_or(self.pulse_at, |next| next.min(self.pulse_at)),
        }
    }

    /// Takes a datagram.
    ///
    /// # Errors
    ///
    /// Why it was refused. It is counted, and nothing else follows.
    pub fn receive(
        &mut self,
        now: Duration,
        from: SocketAddr,
        datagram: &[u8],
    ) -> Result<(), Cause> {
        let incoming = self.endpoint.open(now, datagram)?;
        let clock = self.clock_at(now);
        let checked = self.endpoint.check_term(&incoming, self.term, clock);
        checked.inspect_err(|_| self.ahead = Some(now))?;
        match incoming {
            // Another process has this coordinator's number. It is not heard.
            Incoming::New(peer, _) | Incoming::Challenged(peer) if peer == self.endpoint.me() => {}
            Incoming::New(peer, body) => match peer.role {
                Role::Node => self.hear_node(now, (from, peer), body),
                Role::Coordinator => self.hear_coordinator(now, (from, peer), body),
                Role::Operator => self.hear_operator(now, (from, peer), body),
            },
            Incoming::Challenged(peer) => self.say_again(now, from, peer),
            Incoming::Answer(datagram) => self.outbox.put(from, datagram),
            Incoming::Hint(_) | Incoming::Nothing => {}
        }
        Ok(())
    }

    /// The time since 1970, by the clock that this coordinator began with.
    fn clock_at(&self, now: Duration) -> Duration {
        self.clock + now.saturating_sub(self.began)
    }

    fn say(&mut self, (to, peer): (SocketAddr, Peer), body: &Body, transfer: u32) {
        let to = (to, Some(peer));
        self.outbox.say(&mut self.endpoint, to, body, transfer);
    }

    /// Says again what a peer has challenged.
    fn say_again(&mut self, now: Duration, from: SocketAddr, peer: Peer) {
        match (peer.role, &self.stance) {
            (Role::Coordinator, stance) => {
                let body = stance.said(self.state.number, self.revision());
                self.peers.insert(from, peer);
                if let Some(body) = body {
                    self.say((from, peer), &body, 0);
                }
            }
            (Role::Node, _) => {
                if let Some(presence) = self.members.get_mut(&NodeId(peer.id)) {
                    presence.expect(now);
                }
                self.deliver(now);
            }
            (Role::Operator, _) => {}
        }
    }
}
