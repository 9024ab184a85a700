//! The nodes that are alive, and the topologies that they follow.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::super::body::{Body, Member};
use super::super::envelope::{Peer, Role};
use super::CoordinatorEnd;
use crate::coordination::{LiveNode, Refusal};
use crate::identity::{NodeId, Revision};
use crate::topology::NODES;

/// The longest wait between two attempts to send a topology to a node.
const PATIENCE: Duration = Duration::from_secs(4);

/// The maximum number of refused machines that are remembered.
const REFUSALS: usize = 16;

/// A node that is alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberState {
    pub(super) member: Member,
    pub(super) heard: Duration,
    /// Whether the node was heard since this coordinator began to lead or was last paused.
    pub(super) is_heard: bool,
    /// When to send the topology to the node again. `attempts` counts the times it was sent.
    next: Duration,
    attempts: u32,
}

impl MemberState {
    /// A node that is heard now, or a node that the previous leader knew.
    fn new(now: Duration, member: Member, is_heard: bool) -> Self {
        Self {
            member,
            heard: now,
            is_heard,
            next: now,
            attempts: 0,
        }
    }

    /// The node's address, and the node's role and id in the control protocol.
    pub(super) fn address(&self) -> (SocketAddr, Peer) {
        let announcement = &self.member.announcement;
        (announcement.address, peer(announcement.node))
    }

    /// Makes the coordinator send its topology to this node at once.
    pub(super) fn expect(&mut self, now: Duration) {
        (self.next, self.attempts) = (now, 0);
    }
}

fn peer(node: NodeId) -> Peer {
    Peer {
        role: Role::Node,
        id: node.0,
    }
}

/// A machine that the coordinator refused as a node less than `offline` ago.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The machine's node id.
    pub node: NodeId,
    /// The address from which the machine's messages come.
    pub address: SocketAddr,
    /// The reason of the refusal.
    pub why: Refusal,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, address, why } = self;
        write!(
            f,
            "the machine at {address}, node {node}, is refused: {why}"
        )
    }
}

/// The nodes that are alive, and the machines that are refused.
#[derive(Debug, Default)]
pub(super) struct Members {
    nodes: BTreeMap<NodeId, MemberState>,
    refusals: BTreeMap<(NodeId, SocketAddr), (Refusal, Duration)>,
}

impl Members {
    /// The nodes that the previous leader knew. This coordinator has not heard any of them yet.
    pub(super) fn inherited(now: Duration, known: Vec<Member>) -> Self {
        let presence = |member: Member| {
            let node = member.announcement.node;
            (node, MemberState::new(now, member, false))
        };
        Self {
            nodes: known.into_iter().map(presence).collect(),
            refusals: BTreeMap::new(),
        }
    }

    pub(super) fn live(&self) -> Vec<LiveNode> {
        let live = |one: &MemberState| LiveNode {
            announcement: one.member.announcement,
            acknowledged: one.member.follows,
        };
        self.nodes.values().map(live).collect()
    }

    pub(super) fn list(&self) -> Vec<Member> {
        self.nodes.values().map(|one| one.member).collect()
    }

    /// The nodes, and the milliseconds since the last message of each.
    pub(super) fn ages(&self, now: Duration) -> Vec<(Member, u32)> {
        let age = |one: &MemberState| now.saturating_sub(one.heard).as_millis();
        let aged = |one: &MemberState| (one.member, u32::try_from(age(one)).unwrap_or(u32::MAX));
        self.nodes.values().map(aged).collect()
    }

    /// The addresses of nodes and of refused machines.
    pub(super) fn all_addresses(&self) -> Vec<(SocketAddr, Peer)> {
        let refused = self.refusals.keys();
        let refused = refused.map(|(node, address)| (*address, peer(*node)));
        self.addresses().into_iter().chain(refused).collect()
    }

    pub(super) fn addresses(&self) -> Vec<(SocketAddr, Peer)> {
        self.nodes.values().map(MemberState::address).collect()
    }

    /// The newest topology by which any node captures.
    pub(super) fn newest(&self) -> Option<Revision> {
        let follows = self.nodes.values().map(|one| one.member.follows);
        follows.max().flatten()
    }

    /// Makes the coordinator send its topology to `node` at once.
    pub(super) fn expect(&mut self, node: NodeId, now: Duration) {
        if let Some(presence) = self.nodes.get_mut(&node) {
            presence.expect(now);
        }
    }

    pub(super) fn expect_all(&mut self, now: Duration) {
        self.nodes.values_mut().for_each(|one| one.expect(now));
    }

    /// Removes nodes silent for `offline`, and refusals older than `offline`. Returns whether a
    /// node was removed. If no node has been heard for one and a half heartbeats, the coordinator
    /// itself may be cut off. Then no node is removed until all nodes are silent for `offline`.
    fn expire(&mut self, now: Duration, offline: Duration, heartbeat: Duration) -> bool {
        let before = self.nodes.len();
        let latest = self.nodes.values().map(|one| one.heard).max();
        let is_heard = latest.is_some_and(|latest| now < latest + heartbeat * 3 / 2);
        let all_are = latest.is_some_and(|latest| now >= latest + offline);
        if is_heard || all_are {
            self.nodes.retain(|_, one| now < one.heard + offline);
        }
        self.refusals.retain(|_, (_, at)| now < *at + offline);
        self.nodes.len() != before
    }

    /// Does not count a pause of this coordinator's process as silence of the nodes. After the
    /// pause, each node counts as not heard until its next message.
    pub(super) fn excuse(&mut self, pause: Duration) {
        for one in self.nodes.values_mut() {
            (one.heard, one.is_heard) = (one.heard + pause, false);
        }
        let refused = self.refusals.values_mut();
        refused.for_each(|(_, at)| *at += pause);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Why the machine that sent `of` is refused; `None` if it is not refused.
    fn refusal(&self, of: &Member) -> Option<Refusal> {
        match self.nodes.get(&of.announcement.node) {
            Some(known) if known.member.announcement.boot != of.announcement.boot => {
                Some(Refusal::TakenId)
            }
            None if self.nodes.len() >= NODES => Some(Refusal::Full),
            _ => None,
        }
    }

    /// Notes a refused machine, for the operator.
    fn note_refusal(&mut self, now: Duration, who: (NodeId, SocketAddr), why: Refusal) {
        if self.refusals.len() < REFUSALS || self.refusals.contains_key(&who) {
            self.refusals.insert(who, (why, now));
        }
    }

    /// Notes a node's announcement. Returns two answers: whether the announcement is new, and
    /// whether the leader has now heard all nodes that it was waiting for.
    fn hear(&mut self, now: Duration, member: Member) -> (bool, bool) {
        let node = member.announcement.node;
        let fresh = || MemberState::new(now, member, true);
        let is_newcomer = !self.nodes.contains_key(&node);
        let presence = self.nodes.entry(node).or_insert_with(fresh);
        let was_awaited = !presence.is_heard;
        (presence.heard, presence.is_heard) = (now, true);
        let is_new = is_newcomer || presence.member != member;
        presence.member = member;
        if is_new {
            presence.expect(now);
        }
        let is_last = was_awaited && self.nodes.values().all(|one| one.is_heard);
        (is_new, is_last)
    }
}

impl CoordinatorEnd {
    /// Removes nodes that were silent for too long, and refusals that are too old.
    pub(super) fn expire(&mut self, now: Duration) {
        if self
            .members
            .expire(now, self.settings.offline, self.settings.announce)
        {
            self.knowledge.count_change();
        }
    }

    /// Sends the topology to the nodes that do not follow it. Asks a node with a newer topology for
    /// that topology. A coordinator that does not know the newest topology sends none.
    pub(super) fn deliver(&mut self, now: Duration) {
        let own = self.knowledge.revision();
        let gives = self.plans(now) && self.members.newest() <= own;
        let mut due = Vec::new();
        for one in self.members.nodes.values_mut() {
            let is_newer = one.member.follows > own;
            if one.member.follows == own || now < one.next {
                continue;
            }
            if !is_newer && !gives {
                one.next = now + self.settings.retry / 4;
                continue;
            }
            let wait = self.settings.retry * (1 << one.attempts.min(8));
            one.next = now + wait.min(PATIENCE);
            one.attempts += 1;
            due.push((one.address(), is_newer));
        }
        for (place, is_newer) in due {
            if is_newer {
                self.say(place, &Body::Fetch, 0);
            } else if let Some((revision, topology)) = self.knowledge.state.topology.clone() {
                let body = Body::TopologyUpdate(revision, topology);
                self.say(place, &body, self.knowledge.topologys);
            }
        }
    }

    /// When [`CoordinatorEnd::deliver`] is due.
    pub(super) fn next_delivery(&self) -> Option<Duration> {
        let own = self.knowledge.revision();
        let members = self.members.nodes.values();
        let late = members.filter(|one| one.member.follows != own);
        late.map(|one| one.next).min()
    }

    /// The machines that this coordinator refuses. A standby refuses no machine.
    pub fn refused_machines(&self) -> Vec<Refused> {
        let refused = self.members.refusals.iter();
        let refused = refused.map(|(&(node, address), &(why, _))| Refused { node, address, why });
        refused.collect()
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "coordinators drop all other messages of nodes"
    )]
    pub(super) fn hear_node(&mut self, now: Duration, from: (SocketAddr, Peer), body: Body) {
        let node = NodeId(from.1.id);
        if matches!(
            body,
            Body::Join(_) | Body::Heartbeat(..) | Body::Acknowledge(_)
        ) {
            self.see(now, body.term());
        }
        if !self.leads() {
            // A join that the leader would refuse does not show that the leader is gone.
            let known = || Members::inherited(now, self.knowledge.state.members.clone());
            if matches!(&body, Body::Join(member) if known().refusal(member).is_none()) {
                self.note_asked(now, node);
            }
            match body {
                Body::Announce(leader) => self.hear_served(now, leader),
                _ => self.point_on(from),
            }
            return;
        }
        match body {
            Body::Join(member) | Body::Heartbeat(member, _) => {
                self.hear_member(now, from, member);
            }
            Body::Acknowledge(revision) => self.follows(now, node, Some(Revision(revision))),
            Body::Leave(left) if left == node => {
                self.members.nodes.remove(&node);
                self.knowledge.count_change();
            }
            Body::TopologyUpdate(revision, topology) => {
                self.take_shown_topology(now, revision, topology)
            }
            _ => {}
        }
    }

    /// Accepts or refuses a node, or answers a heartbeat.
    fn hear_member(&mut self, now: Duration, from: (SocketAddr, Peer), mut member: Member) {
        let node = member.announcement.node;
        let Some(leader) = self.election.known.filter(|_| node.0 == from.1.id) else {
            return;
        };
        if let Some(refusal) = self.members.refusal(&member) {
            self.members.note_refusal(now, (node, from.0), refusal);
            self.say(from, &Body::Refuse(node, refusal), 0);
            return;
        }
        self.members.refusals.remove(&(node, from.0));
        member.announcement.address = from.0;
        // A heartbeat gets the same answer as a join, because the node may not know this term yet.
        self.say(from, &Body::Accept(node, leader), 0);
        self.note(now, member);
        self.deliver(now);
    }

    fn note(&mut self, now: Duration, member: Member) {
        if self.is_of_earlier_run(member.follows) {
            self.resign(now);
            return;
        }
        let (is_new, is_last) = self.members.hear(now, member);
        if is_new {
            self.knowledge.count_change();
        }
        self.settle(now, member.follows, is_last);
    }

    fn follows(&mut self, now: Duration, node: NodeId, revision: Option<Revision>) {
        let Some(presence) = self.members.nodes.get(&node) else {
            return;
        };
        let mut member = presence.member;
        member.follows = member.follows.max(revision);
        self.note(now, member);
    }
}
