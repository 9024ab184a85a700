//! Which nodes are alive, and which topology they follow.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::body::{Body, Member};
use super::super::envelope::{Peer, Role};
use super::super::term::Term;
use super::CoordinatorEnd;
use crate::coordination::{Live, Refusal};
use crate::identity::{NodeId, Revision};
use crate::topology::NODES;

/// The longest wait between two attempts to send a topology to a node.
const PATIENCE: Duration = Duration::from_secs(4);

/// Most refused machines that are remembered.
const REFUSALS: usize = 16;

/// A node that is alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Presence {
    pub(super) member: Member,
    pub(super) heard: Duration,
    /// Whether this coordinator has heard it. Else the last one has.
    pub(super) is_heard: bool,
    /// When the topology is sent to it again, and how often it was.
    next: Duration,
    attempts: u32,
}

impl Presence {
    /// A node that the last coordinator knew.
    pub(super) fn inherited(now: Duration, member: Member) -> Self {
        Self {
            is_heard: false,
            ..Self::new(now, member)
        }
    }

    fn new(now: Duration, member: Member) -> Self {
        Self {
            member,
            heard: now,
            is_heard: true,
            next: now,
            attempts: 0,
        }
    }

    pub(super) fn live(&self) -> Live {
        Live {
            announcement: self.member.announcement,
            acknowledged: self.member.follows,
        }
    }

    /// Whether the node follows a topology other than the coordinator's `own`. A coordinator that
    /// is or may be behind sends no topology, and only asks for a newer one.
    fn lacks(&self, own: Option<Revision>, gives: bool) -> bool {
        self.member.follows > own || self.member.follows < own && gives
    }

    /// Where its messages come from, and who sends them.
    pub(super) fn place(&self) -> (SocketAddr, Peer) {
        let announcement = &self.member.announcement;
        let peer = Peer {
            role: Role::Node,
            id: announcement.node.0,
        };
        (announcement.address, peer)
    }

    /// Has the topology sent to it at once.
    pub(super) fn expect(&mut self, now: Duration) {
        (self.next, self.attempts) = (now, 0);
    }
}

impl CoordinatorEnd {
    /// Strikes out nodes that were silent for too long, and troubles that are as old.
    pub(super) fn expire(&mut self, now: Duration) {
        let offline = self.settings.offline;
        let before = self.members.len();
        self.members.retain(|_, one| now < one.heard + offline);
        self.refusals.retain(|_, (_, at)| now < *at + offline);
        self.ahead = self.ahead.filter(|at| now < *at + offline);
        if self.members.len() != before {
            self.changed();
        }
    }

    /// Sends the topology to the nodes that do not follow it, and asks nodes with a newer topology
    /// for that one.
    pub(super) fn deliver(&mut self, now: Duration) {
        self.gives = self.is_settled(now) && !self.is_behind();
        let (own, gives) = (self.revision(), self.gives);
        let mut due = Vec::new();
        for one in self.members.values_mut() {
            if one.lacks(own, gives) && now >= one.next {
                let wait = self.settings.retry * (1 << one.attempts.min(8));
                one.next = now + wait.min(PATIENCE);
                one.attempts += 1;
                due.push((one.place(), one.member.follows > own));
            }
        }
        for (place, is_newer) in due {
            if is_newer {
                self.say(place, &Body::Fetch, 0);
            } else if let Some((revision, topology)) = self.state.topology.clone() {
                let body = Body::TopologyUpdate(revision, topology);
                self.say(place, &body, self.transfer);
            }
        }
    }

    /// When [`CoordinatorEnd::deliver`] has something to do.
    pub(super) fn next_delivery(&self) -> Option<Duration> {
        let (own, gives) = (self.revision(), self.gives);
        let members = self.members.values();
        let late = members.filter(|one| one.lacks(own, gives));
        late.map(|one| one.next).min()
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "what this role takes from nobody is dropped"
    )]
    pub(super) fn hear_node(&mut self, now: Duration, from: (SocketAddr, Peer), body: Body) {
        let node = NodeId(from.1.id);
        if let Body::Heartbeat(member, term) = &body {
            self.see(
                now,
                member
                    .follows
                    .map_or(*term, |follows| Term::of(follows).max(*term)),
            );
        }
        if !self.leads() {
            self.point_on(from);
            return;
        }
        match body {
            Body::Join(member) | Body::Heartbeat(member, _) => {
                self.hear_member(now, from, member);
            }
            Body::Acknowledge(revision) => self.follows(now, node, Some(Revision(revision))),
            Body::Leave(left) if left == node => {
                self.members.remove(&node);
                self.changed();
            }
            Body::TopologyUpdate(revision, topology) => self.take_shown(now, revision, topology),
            _ => {}
        }
    }

    /// Takes a node in, or refuses it; answers a heartbeat.
    fn hear_member(&mut self, now: Duration, from: (SocketAddr, Peer), mut member: Member) {
        let node = member.announcement.node;
        let Some(leader) = self.known.filter(|_| node.0 == from.1.id) else {
            return;
        };
        let known = self.members.get(&node);
        let refusal = match known {
            Some(known) if known.member.announcement.boot != member.announcement.boot => {
                Some(Refusal::TakenId)
            }
            None if self.members.len() >= NODES => Some(Refusal::Full),
            _ => None,
        };
        if let Some(refusal) = refusal {
            self.note_refusal(now, (node, from.0), refusal);
            self.say(from, &Body::Refuse(node, refusal), 0);
            return;
        }
        self.refusals.remove(&(node, from.0));
        member.announcement.address = from.0;
        let was = known.map(|known| known.member);
        // Heartbeats are answered alike: the node may not know yet that this term has begun.
        self.say(from, &Body::Accept(node, leader), 0);
        let presence = self
            .members
            .entry(node)
            .or_insert_with(|| Presence::new(now, member));
        (presence.heard, presence.is_heard) = (now, true);
        presence.member = member;
        if was != Some(member) {
            presence.expect(now);
            self.changed();
        }
        self.begin_to_settle(now);
        self.deliver(now);
    }

    /// Notes who is refused, for the operator.
    fn note_refusal(&mut self, now: Duration, who: (NodeId, SocketAddr), why: Refusal) {
        let offline = self.settings.offline;
        self.refusals.retain(|_, (_, at)| now < *at + offline);
        if self.refusals.len() < REFUSALS || self.refusals.contains_key(&who) {
            self.refusals.insert(who, (why, now));
        }
    }

    /// Notes which topology a node captures by.
    fn follows(&mut self, now: Duration, node: NodeId, revision: Option<Revision>) {
        let Some(presence) = self.members.get_mut(&node) else {
            return;
        };
        (presence.heard, presence.is_heard) = (now, true);
        if presence.member.follows < revision {
            presence.member.follows = revision;
            self.changed();
        }
        self.see(now, revision.map(Term::of).unwrap_or_default());
    }
}
