//! A node's side of the control protocol: finds the active coordinator and keeps contact with it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::body::{Body, Leader, Member};
use super::endpoint::{Endpoint, Incoming};
use super::envelope::{Cause, Peer, Role};
use super::outbox::Outbox;
use super::term::Term;
use crate::coordination::{Announcement, NodeEvent, Refusal, unreadable_topology};
use crate::identity::Revision;
use crate::topology::Topology;

/// How many addresses of coordinators a node remembers in addition to those in its settings.
const LEARNT: usize = 16;

/// After this many heartbeats without an answer, a node also asks other coordinators.
const UNANSWERED: u32 = 3;

/// A node's times, and its coordinators' addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSettings {
    /// Addresses of coordinators. The node learns other addresses from multicast announcements.
    pub coordinators: Vec<SocketAddr>,
    /// The time between heartbeats (DiCAP: 5 s).
    pub heartbeat: Duration,
    /// The time between attempts to join, while no answer comes.
    pub retry: Duration,
    /// How long a coordinator must be silent until the node looks for another one (DiCAP: 15 s).
    pub silence: Duration,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            coordinators: Vec::new(),
            heartbeat: Duration::from_secs(5),
            retry: Duration::from_secs(1),
            silence: Duration::from_secs(15),
        }
    }
}

/// The coordinator that has accepted the node.
#[derive(Clone, Copy, Debug)]
struct Following {
    leader: Leader,
    peer: Peer,
    address: SocketAddr,
    heard: Duration,
    /// When the coordinator last answered a heartbeat.
    accepted: Duration,
    unanswered: u32,
}

/// A node's side of the control protocol.
#[derive(Debug)]
pub struct NodeEnd {
    settings: NodeSettings,
    endpoint: Endpoint,
    member: Member,
    learnt: VecDeque<SocketAddr>,
    following: Option<Following>,
    term: Term,
    /// When the node last answered a coordinator's announcement with a join.
    last_join_sent: Option<Duration>,
    /// When the node reports that no coordinator has accepted it yet; zero before the first tick.
    limit: Duration,
    next: Duration,
    /// The newest topology that the node received. Its datagrams have the number `transfers`.
    newest: Option<(Revision, Box<Topology>)>,
    transfers: u32,
    refusal: Option<Refusal>,
    /// Whether the node has already reported that it can't read the last topology.
    is_behind_told: bool,
    events: VecDeque<NodeEvent>,
    outbox: Outbox,
}

impl NodeEnd {
    /// A node with this announcement. The first [`NodeEnd::tick`] sends a join.
    pub fn new(settings: NodeSettings, endpoint: Endpoint, announcement: Announcement) -> Self {
        Self {
            settings,
            endpoint,
            member: Member {
                announcement,
                follows: None,
            },
            learnt: VecDeque::new(),
            following: None,
            term: Term::default(),
            last_join_sent: None,
            limit: Duration::ZERO,
            next: Duration::ZERO,
            newest: None,
            transfers: 0,
            refusal: None,
            is_behind_told: false,
            events: VecDeque::new(),
            outbox: Outbox::default(),
        }
    }

    /// The next datagram to send, and its receiver.
    pub fn outgoing(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.outbox.take()
    }

    /// The next event for the caller.
    pub fn event(&mut self) -> Option<NodeEvent> {
        self.events.pop_front()
    }

    /// When [`NodeEnd::tick`] is due.
    pub fn wake(&self) -> Duration {
        self.next
    }

    /// The coordinator that has accepted the node.
    pub fn leader(&self) -> Option<Leader> {
        self.following.map(|following| following.leader)
    }

    /// The number of datagrams that were refused because of `cause`.
    pub fn refused(&self, cause: Cause) -> u64 {
        self.endpoint.refused(cause)
    }

    /// The endpoint, whose keys can be changed.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Changes the node's announcement.
    pub fn announce(&mut self, announcement: Announcement) {
        if self.member.announcement != announcement {
            self.member.announcement = announcement;
            self.beat();
        }
    }

    /// Sends the coordinator the revision of the topology by which the node now selects packets.
    pub fn acknowledge(&mut self, revision: Revision) {
        self.member.follows = self.member.follows.max(Some(revision));
        self.tell(&Body::Acknowledge(revision.0));
    }

    /// Leaves the cluster. Do not call [`NodeEnd::tick`] afterwards, which would join again.
    pub fn leave(&mut self) {
        self.tell(&Body::Leave(self.member.announcement.node));
        self.following = None;
    }

    /// Sends what is due at the time `now`.
    pub fn tick(&mut self, now: Duration) {
        if now < self.next {
            return;
        }
        let silence = self.settings.silence;
        if self.following.is_some_and(|to| now >= to.heard + silence) {
            self.following = None;
            self.events.push_back(NodeEvent::Reach(false));
        }
        self.report_silence(now);
        let unanswered = self.beat();
        if unanswered >= UNANSWERED {
            self.ask_all();
        }
        let refused = self.refusal.is_some() && self.following.is_none();
        let wait = match unanswered == 0 || refused {
            true => self.settings.heartbeat,
            false => self.settings.retry,
        };
        self.next = now + wait;
    }

    /// Reports once, with the refused datagrams, that no coordinator has ever accepted the node.
    fn report_silence(&mut self, now: Duration) {
        let silence = self.settings.silence;
        if self.limit.is_zero() {
            self.limit = now + silence;
        }
        if now < self.limit {
            return;
        }
        self.limit = Duration::MAX;
        let came = match self.endpoint.refusals() {
            none if none.is_empty() => "nothing came from any".to_owned(),
            refused => format!("refused messages: {refused}"),
        };
        let seconds = silence.as_secs();
        let said = format!(
            "no coordinator has answered for {seconds} s ({came}): are coordinators and key_file as \
             in the coordinators' files, and does a firewall let UDP pass?"
        );
        self.events.push_back(NodeEvent::Denied(said));
    }

    /// Sends a heartbeat to the coordinator. Returns how many earlier heartbeats have no answer.
    fn beat(&mut self) -> u32 {
        let body = Body::Heartbeat(self.member, self.term);
        self.tell(&body);
        match &mut self.following {
            Some(following) => {
                following.unanswered += 1;
                following.unanswered - 1
            }
            None => UNANSWERED,
        }
    }

    /// Answers a standby. If the leader has answered a heartbeat recently, the answer names this
    /// leader. Otherwise the node also sends the leader a heartbeat. If the standby is the node's
    /// own leader, the node looks for another leader.
    fn hear_standby(&mut self, now: Duration, from: (SocketAddr, Peer), is_followed: bool) {
        let limit = self.settings.retry * 3 / 2;
        let served = self.following.filter(|to| now < to.accepted + limit);
        let body = match served {
            Some(to) if !is_followed => Body::Announce(to.leader),
            _ => Body::Heartbeat(self.member, self.term),
        };
        self.answer(from.0, from.1, &body);
        if is_followed {
            if let Some(following) = &mut self.following {
                following.unanswered = UNANSWERED;
            }
            self.next = now;
        } else if served.is_none() {
            let body = Body::Heartbeat(self.member, self.term);
            self.tell(&body);
        }
    }

    fn answer(&mut self, to: SocketAddr, peer: Peer, body: &Body) {
        self.say(to, Some(peer), body, 0);
    }

    fn tell(&mut self, body: &Body) {
        if let Some(to) = self.following {
            self.answer(to.address, to.peer, body);
        }
    }

    fn say(&mut self, to: SocketAddr, peer: Option<Peer>, body: &Body, transfer: u32) {
        self.outbox
            .say(&mut self.endpoint, (to, peer), body, transfer);
    }

    fn ask_all(&mut self) {
        let configured = self.settings.coordinators.iter();
        let all: Vec<SocketAddr> = configured.chain(&self.learnt).copied().collect();
        for address in all {
            self.join(address, None);
        }
    }

    fn join(&mut self, address: SocketAddr, peer: Option<Peer>) {
        self.say(address, peer, &Body::Join(self.member), 0);
    }

    /// Takes a datagram.
    ///
    /// # Errors
    /// Fails if the datagram is refused; a counter says why.
    pub fn receive(&mut self, now: Duration, from: SocketAddr, bytes: &[u8]) -> Result<(), Cause> {
        let incoming = self.endpoint.open(now, bytes);
        if incoming == Err(Cause::Version) && self.following.is_none() {
            self.refuse(Refusal::Version);
        }
        let incoming = incoming?;
        self.endpoint.check_term(&incoming, self.term)?;
        match incoming {
            Incoming::New(peer, body) if peer.role == Role::Coordinator => {
                self.hear(now, from, peer, body);
            }
            Incoming::Hint(leader) => self.join_announced(now, leader),
            // The challenge shows that this peer gets messages at the datagram's address.
            Incoming::Challenged(peer) => match &mut self.following {
                Some(to) if to.peer == peer => {
                    to.address = from;
                    self.tell(&Body::Heartbeat(self.member, self.term));
                }
                _ => self.join(from, Some(peer)),
            },
            Incoming::Unreadable(peer, revision) => {
                let is_followed = self.following.is_some_and(|to| to.peer == peer);
                if is_followed && !std::mem::replace(&mut self.is_behind_told, true) {
                    let said = unreadable_topology(revision);
                    self.events.push_back(NodeEvent::Denied(said));
                }
            }
            Incoming::Answer(datagram) => self.outbox.put(from, datagram),
            Incoming::New(..) | Incoming::Nothing => {}
        }
        Ok(())
    }

    /// Whether `body` shows that the node still reaches its leader. The body of a standby's message
    /// does not show this, because the standby may name a leader that the node does not reach.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "all other bodies may come from standbys"
    )]
    fn is_served_by(&self, body: &Body) -> bool {
        match body {
            Body::Announce(leader) => self.leader() == Some(*leader),
            Body::Accept(..) | Body::TopologyUpdate(..) | Body::Fetch => true,
            _ => false,
        }
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "this role drops all other messages"
    )]
    fn hear(&mut self, now: Duration, from: SocketAddr, peer: Peer, body: Body) {
        let serves = self.is_served_by(&body);
        let following = self.following.as_mut().filter(|to| to.peer == peer);
        let is_followed = following.is_some();
        if let Some(following) = following.filter(|_| serves) {
            following.heard = now;
            following.unanswered = 0;
        }
        let own = self.member.announcement.node;
        match body {
            Body::Accept(node, leader) if node == own => self.follow(now, from, peer, leader),
            // The node's leader asks whether its messages reach the node.
            Body::Announce(leader) if is_followed && self.leader() == Some(leader) => {
                self.answer(from, peer, &Body::Heartbeat(self.member, self.term));
            }
            Body::Standby(_) => self.hear_standby(now, (from, peer), is_followed),
            Body::Announce(leader) => self.join_announced(now, leader),
            Body::Refuse(node, refusal) if node == own => {
                if is_followed {
                    self.following = None;
                }
                if self.following.is_none() {
                    self.refuse(refusal);
                }
            }
            Body::TopologyUpdate(revision, topology) if is_followed => {
                self.take_topology(revision, topology);
            }
            Body::Fetch => self.show(from, peer),
            _ => {}
        }
    }

    /// Follows a coordinator that has accepted the node, unless the node knows of a greater term.
    fn follow(&mut self, now: Duration, address: SocketAddr, peer: Peer, leader: Leader) {
        if leader.term < self.term {
            // This heartbeat has the greater term. When it arrives, the coordinator stops leading.
            self.answer(address, peer, &Body::Heartbeat(self.member, self.term));
            return;
        }
        self.term = leader.term;
        self.refusal = None;
        self.limit = Duration::MAX;
        // A stranger may replay a lost answer. The stranger's address must not get heartbeats.
        let known = self.following.filter(|to| to.peer == peer);
        let address = known.map_or(address, |to| to.address);
        let before = self.following.replace(Following {
            leader,
            peer,
            address,
            heard: now,
            accepted: now,
            unanswered: 0,
        });
        if before.is_none() {
            self.events.push_back(NodeEvent::Reach(true));
        }
        self.next = now + self.settings.heartbeat;
    }

    /// Takes a topology from the coordinator that the node follows. If the node has a newer
    /// topology, or knows of a greater term, it keeps its own topology.
    fn take_topology(&mut self, revision: Revision, topology: Box<Topology>) {
        if self.leader().is_none_or(|leader| leader.term < self.term) {
            self.beat();
            return;
        }
        // A restarted agent lacks `newest`, but the kernel still selects by the topology `follows`.
        let newest = self.newest.as_ref().map(|(revision, _)| *revision);
        if Some(revision) > newest && Some(revision) >= self.member.follows {
            self.newest = Some((revision, topology.clone()));
            self.is_behind_told = false;
            self.transfers = self.transfers.wrapping_add(1);
            self.events
                .push_back(NodeEvent::Topology(revision, topology));
        } else if let Some(follows) = self.member.follows {
            self.tell(&Body::Acknowledge(follows.0));
        }
    }

    /// Sends the newest topology to a coordinator that has an older topology or none.
    fn show(&mut self, to: SocketAddr, peer: Peer) {
        if let Some((revision, topology)) = self.newest.clone() {
            let body = Body::TopologyUpdate(revision, topology);
            self.say(to, Some(peer), &body, self.transfers);
        }
    }

    /// Sends a join to an announced coordinator, if the node follows another coordinator. The
    /// announced term must not be less than the greatest known term.
    fn join_announced(&mut self, now: Duration, leader: Leader) {
        if leader.term < self.term {
            return;
        }
        self.term = leader.term;
        let is_followed = self.leader().is_some_and(|own| own.term == leader.term);
        let retry = self.settings.retry;
        if is_followed || self.last_join_sent.is_some_and(|at| now < at + retry) {
            return;
        }
        self.last_join_sent = Some(now);
        let known = self.settings.coordinators.iter().chain(&self.learnt);
        if known.clone().all(|address| *address != leader.address) {
            self.learnt.truncate(LEARNT - 1);
            self.learnt.push_front(leader.address);
        }
        let peer = Peer {
            role: Role::Coordinator,
            id: u32::from(leader.number),
        };
        self.join(leader.address, Some(peer));
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.limit = Duration::MAX;
        if self.refusal.replace(refusal) != Some(refusal) {
            self.events.push_back(NodeEvent::Refused(refusal));
        }
    }
}
