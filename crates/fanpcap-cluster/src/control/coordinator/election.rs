//! Which coordinator leads: pulses, elections, synchronisation.
//!
//! * A standby that hears no pulse for a while becomes a candidate. Its new term is greater than
//!   all terms that it has heard of. Standbys with higher numbers wait longer for a pulse.
//! * A candidate withdraws if it hears an active coordinator, or a better candidate. Of two
//!   candidates, the one with the newer topology is better. If they have the same topology, the one
//!   that knows of the greater term is better. If the terms are the same too, the one with the
//!   lower number is better. A candidate that does not withdraw leads when its ballot ends.
//! * A leader steps down when it learns of another leader's greater term: from a pulse, an
//!   announcement, or a node's heartbeat or acknowledgement.
//!
//! * If there are other coordinators, a coordinator that hears nobody is neither candidate nor
//!   leader. It may still be able to send, and its pulses would keep the others from leading.
//!   Standbys answer pulses, and nodes answer announcements and standbys, so that a coordinator
//!   that can receive soon hears something.
//! * A coordinator that can't read the cluster's topology waits longer than the others, so that one
//!   that can read the topology becomes a candidate first. As a candidate it withdraws if it hears
//!   any other candidate. A leader that can't read the topology writes nothing.
//! * A standby that hears the leader becomes a candidate if nodes that do not reach the leader keep
//!   asking it, and if it would serve more nodes than the leader.
//!
//! If two coordinators can't hear each other, both may lead. Their terms differ, so a node that
//! hears both leaders follows the greater term, and sends this term to the other leader.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::super::body::{Body, Leader};
use super::super::envelope::Peer;
use super::super::term::Term;
use super::{CoordinatorEnd, Members};
use crate::identity::{NodeId, Revision};

/// A standby waits this much longer than a standby whose number is lower by one.
const STEP: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
pub(super) enum ElectionRole {
    /// The coordinator stands by. It has waited for a pulse since `heard`.
    Standby { heard: Duration },
    /// The coordinator is a candidate. It leads at the time `until` if no other coordinator
    /// objects.
    Candidate { leader: Leader, until: Duration },
    /// The coordinator leads. From the time `settled` on, it knows which topology the nodes follow.
    /// It has asked nodes for the topology of the revision `asked`, which is newer than its own.
    Leading {
        leader: Leader,
        settled: Duration,
        asked: Option<Revision>,
    },
}

/// What a coordinator knows of the election: its own role, and which coordinator leads.
#[derive(Debug)]
pub(super) struct Election {
    pub(super) role: ElectionRole,
    /// The greatest term of any coordinator that has led.
    pub(super) term: Term,
    /// The active coordinator.
    pub(super) known: Option<Leader>,
    /// When this coordinator last heard the active coordinator.
    pulsed: Option<Duration>,
    /// When this coordinator last heard a node or another coordinator.
    pub(super) touched: Duration,
    /// Nodes that ask this standby to lead: when each node asked first and last.
    pub(super) asked: BTreeMap<NodeId, [Duration; 2]>,
    /// When this standby last heard each node.
    pub(super) heard: BTreeMap<NodeId, Duration>,
    pub(super) pulse_at: Duration,
    /// When this coordinator last asked the nodes to answer.
    pub(super) asked_at: Duration,
    announce_at: Duration,
}

impl Election {
    /// A standby. `term` is the greatest term that it knows of.
    pub(super) fn new(now: Duration, term: Term) -> Self {
        Self {
            role: ElectionRole::Standby { heard: now },
            term,
            known: None,
            pulsed: None,
            touched: now,
            asked: BTreeMap::new(),
            heard: BTreeMap::new(),
            pulse_at: now,
            asked_at: Duration::ZERO,
            announce_at: now,
        }
    }

    /// Whether this coordinator leads, and knows which topology the nodes follow. After a new
    /// leader has heard the first node that the previous leader knew, it waits a while for the
    /// other nodes. Nodes that it does not hear in that time count as dead.
    pub(super) fn is_settled(&self, now: Duration) -> bool {
        matches!(self.role, ElectionRole::Leading { settled, .. } if now >= settled)
    }
}

impl CoordinatorEnd {
    /// How long this coordinator waits for a pulse before it becomes a candidate.
    pub(super) fn patience(&self) -> Duration {
        let longer = self.unreadable().map(|_| self.settings.offline);
        let step = STEP * u32::from(self.settings.number);
        self.settings.silence + step + longer.unwrap_or_default()
    }

    /// This coordinator's topology revision in elections; `None` if the topology is unreadable.
    fn standing(&self) -> Option<Revision> {
        let known = self.knowledge.revision();
        known.filter(|_| self.unreadable().is_none())
    }

    /// The message that this coordinator sends to the other coordinators.
    pub(super) fn message(&self) -> Option<Body> {
        let revision = || self.standing().unwrap_or_default();
        match self.election.role {
            ElectionRole::Standby { .. } => None,
            ElectionRole::Candidate { leader, .. } => Some(Body::Elect(leader, revision())),
            ElectionRole::Leading { leader, .. } => {
                Some(Body::Pulse(leader, self.knowledge.state.number))
            }
        }
    }

    /// Whether this coordinator has heard the active one a short time ago.
    fn has_pulse(&self, now: Duration) -> bool {
        let silence = self.settings.silence;
        self.election.known.is_some() && self.election.pulsed.is_some_and(|at| now < at + silence)
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.election.role, ElectionRole::Leading { .. })
    }

    /// Waits for the leader's pulse. If no pulse comes, asks the coordinators and nodes for
    /// answers, and becomes a candidate if this standby is not cut off.
    pub(super) fn stand_by(&mut self, now: Duration, heard: Duration) {
        let is_due = now >= heard + self.patience() && self.is_in_touch(now);
        if is_due || self.is_asked_in_vain(now) {
            self.stand_for_election(now);
        } else if now >= self.question_at(heard)
            || self.is_asked(now) && now >= self.election.pulse_at
        {
            self.election.pulse_at = now + self.settings.pulse;
            let body = Body::Standby(self.election.term);
            self.tell_coordinators(&body);
            let nodes = self.knowledge.state.members.clone();
            for place in Members::inherited(now, nodes).addresses() {
                self.say(place, &body, 0);
            }
        }
    }

    pub(super) fn stand_for_election(&mut self, now: Duration) {
        let settings = &self.settings;
        let leader = Leader {
            number: settings.number,
            term: self.election.term.next(settings.number),
            address: settings.address,
        };
        let until = now + settings.ballot;
        self.election.role = ElectionRole::Candidate { leader, until };
        self.election.known = None;
        self.tell_others();
    }

    fn tell_others(&mut self) {
        if let Some(body) = self.message() {
            self.tell_coordinators(&body);
        }
    }

    fn tell_coordinators(&mut self, body: &Body) {
        for address in self.settings.others.clone() {
            let peer = self.peers.get(&address).copied();
            self.outbox
                .say(&mut self.endpoint, (address, peer), body, 0);
        }
    }

    /// Becomes the active coordinator. The nodes that the previous leader knew get some time to
    /// report that they are alive, and which topology they follow. This coordinator may have missed
    /// a topology that the previous leader wrote.
    pub(super) fn lead(&mut self, now: Duration, leader: Leader) {
        let state = &mut self.knowledge.state;
        let known = std::mem::take(&mut state.members);
        state.term = leader.term;
        // An earlier process of this coordinator may have had the same term. By the random number,
        // standbys distinguish the states of the two processes.
        state.number = self.endpoint.begin();
        state.desired.selection = self.settings.desired.selection;
        let analyzers = &self.settings.desired.analyzers;
        state.desired.analyzers.clone_from(analyzers);
        let filter = &self.settings.desired.filter;
        state.desired.filter.clone_from(filter);
        self.knowledge.count_change();
        self.knowledge.topologys = self.knowledge.transfers;
        self.members = Members::inherited(now, known);
        self.election.role = ElectionRole::Leading {
            leader,
            settled: Duration::MAX,
            asked: None,
        };
        self.hear_again(now);
        self.election.known = Some(leader);
        self.election.term = leader.term;
        self.election.asked.clear();
        (self.election.pulse_at, self.election.announce_at) = (now, now);
        self.pulse(now);
        for place in self.members.addresses() {
            self.say(place, &Body::Announce(leader), 0);
        }
    }

    /// Notes a message from a node, and which topology the node follows. A leader that waits for
    /// the previous leader's nodes stops waiting when it has heard all of them. If a node follows a
    /// topology that the leader lacks, the leader waits longer for a node to send that topology.
    pub(super) fn settle(&mut self, now: Duration, follows: Option<Revision>, is_last: bool) {
        let known = self.knowledge.revision();
        let (settle, offline) = (self.settings.settle, self.settings.offline);
        let ElectionRole::Leading { settled, asked, .. } = &mut self.election.role else {
            return;
        };
        if follows > known.max(*asked) {
            (*asked, *settled) = (follows, now + offline);
        } else if *asked <= known {
            let wait = if is_last { now } else { now + settle };
            *settled = (*settled).min(wait);
        }
    }

    /// Stops the leader's planning until one of its nodes sends a message.
    pub(super) fn hear_again(&mut self, now: Duration) {
        self.settle_again(now);
        if let ElectionRole::Leading { settled, asked, .. } = &mut self.election.role {
            // If a node's topology is still newer than the leader's, the leader waits for it again.
            *asked = None;
            if !self.members.is_empty() {
                *settled = Duration::MAX;
            }
        }
    }

    /// Begins the wait for nodes again. No node counts as absent before the wait ends.
    pub(super) fn settle_again(&mut self, now: Duration) {
        let wait = now + self.settings.settle;
        if let ElectionRole::Leading { settled, .. } = &mut self.election.role {
            *settled = wait;
        }
    }

    /// Sends the pulse and the announcement, when they are due.
    pub(super) fn pulse(&mut self, now: Duration) {
        if now >= self.election.pulse_at {
            self.election.pulse_at = now + self.settings.pulse;
            self.tell_others();
        }
        self.ask_nodes(now);
        if now >= self.election.announce_at {
            self.election.announce_at = now + self.settings.announce;
            if let (Some(to), Some(leader)) = (self.settings.multicast, self.election.known) {
                self.outbox
                    .say(&mut self.endpoint, (to, None), &Body::Announce(leader), 0);
            }
        }
    }

    /// Gives up the lead. The standbys start an election.
    pub fn resign(&mut self, now: Duration) {
        if self.leads() {
            self.step_down(now);
            self.tell_coordinators(&Body::Standby(self.election.term));
        }
    }

    /// If the active coordinator has resigned, this standby stops waiting for a pulse.
    fn hear_standby(&mut self, now: Duration, from: Peer, term: Term) {
        let is_known = self
            .election
            .known
            .is_some_and(|known| u32::from(known.number) == from.id && known.term == term);
        if is_known && matches!(self.election.role, ElectionRole::Standby { .. }) {
            let heard = now.saturating_sub(self.settings.silence);
            self.election.role = ElectionRole::Standby { heard };
            (self.election.known, self.election.pulsed) = (None, None);
        }
    }

    fn step_down(&mut self, now: Duration) {
        if self.leads() {
            self.knowledge.state = self.current_state();
            self.members = Members::default();
        }
        self.election.role = ElectionRole::Standby { heard: now };
        self.election.known = None;
    }

    /// Notes the term of a leader. Steps down if that term is greater than this coordinator's.
    pub(super) fn see(&mut self, now: Duration, term: Term) {
        if term > self.election.term {
            self.election.term = term;
            if !matches!(self.election.role, ElectionRole::Standby { .. }) {
                self.step_down(now);
            }
        }
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "this role drops all other messages"
    )]
    pub(super) fn hear_coordinator(&mut self, now: Duration, from: (SocketAddr, Peer), body: Body) {
        if self.settings.others.contains(&from.0) {
            self.peers.insert(from.0, from.1);
        }
        match body {
            Body::Pulse(leader, number) => self.hear_pulse(now, from, leader, number),
            Body::Announce(leader) => self.hear_announcement(now, leader),
            Body::Standby(term) => self.hear_standby(now, from.1, term),
            Body::Elect(leader, revision) => self.hear_candidate(now, from, leader, revision),
            Body::Synchronise(state) if !self.leads() && state.term >= self.election.term => {
                self.see(now, state.term);
                self.take_state(from, *state);
            }
            Body::TopologyUpdate(revision, topology)
                if Some(revision) > self.knowledge.revision() =>
            {
                self.take_shown_topology(now, revision, topology);
            }
            Body::Fetch if self.leads() => self.synchronise(from),
            _ => {}
        }
    }

    fn hear_pulse(&mut self, now: Duration, from: (SocketAddr, Peer), leader: Leader, number: u32) {
        if leader.term < self.election.term {
            self.object(from);
            return;
        }
        self.see(now, leader.term);
        if self.leads() {
            return;
        }
        if self.is_asked_candidate(now) {
            return;
        }
        if self
            .election
            .known
            .is_none_or(|known| known.term != leader.term)
        {
            self.election.asked.clear();
        }
        self.election.role = ElectionRole::Standby { heard: now };
        self.election.pulsed = Some(now);
        self.election.known = Some(leader);
        let state = &self.knowledge.state;
        let body = match (state.term, state.number) == (leader.term, number) {
            true => Body::Standby(leader.term),
            false => Body::Fetch,
        };
        self.say(from, &body, 0);
    }

    /// Names the right leader to a coordinator that leads by mistake, or is a candidate.
    fn object(&mut self, to: (SocketAddr, Peer)) {
        let known = self.election.known.map(Body::Announce);
        if let Some(body) = self.message().or(known) {
            self.say(to, &body, 0);
        }
    }

    fn hear_announcement(&mut self, now: Duration, leader: Leader) {
        self.see(now, leader.term);
        let is_other = leader.term != self.election.term;
        if is_other || self.leads() || self.is_asked_candidate(now) {
            return;
        }
        self.election.known = Some(leader);
        if matches!(self.election.role, ElectionRole::Candidate { .. }) {
            // Another coordinator has heard the leader recently. So this candidate waits for one
            // more pulse interval, because the leader may have died since.
            let heard = (now + self.settings.pulse).saturating_sub(self.settings.silence);
            self.election.role = ElectionRole::Standby { heard };
        }
    }

    /// Handles a node's message, which says that `leader` has just answered the node.
    pub(super) fn hear_served(&mut self, now: Duration, leader: Leader) {
        self.see(now, leader.term);
        if leader.term == self.election.term && !self.is_asked_in_vain(now) {
            self.election.role = ElectionRole::Standby { heard: now };
            self.election.known = Some(leader);
        }
    }

    fn hear_candidate(
        &mut self,
        now: Duration,
        from: (SocketAddr, Peer),
        other: Leader,
        revision: Revision,
    ) {
        let own = self.standing().unwrap_or_default();
        let rank = |leader: Leader, revision: Revision| {
            (revision, leader.term.round(), Reverse(leader.number))
        };
        match self.election.role {
            ElectionRole::Leading { .. } => self.object(from),
            ElectionRole::Candidate { leader, .. } if rank(leader, own) > rank(other, revision) => {
                self.object(from);
            }
            // This candidate withdraws, and forgets which nodes have asked it to lead.
            ElectionRole::Candidate { .. } => {
                self.election.asked.clear();
                self.election.role = ElectionRole::Standby { heard: now };
            }
            ElectionRole::Standby { .. } if self.has_pulse(now) => self.object(from),
            ElectionRole::Standby { .. } if own > revision => self.stand_for_election(now),
            ElectionRole::Standby { .. } => {
                self.election.role = ElectionRole::Standby { heard: now }
            }
        }
    }

    /// Answers a node's message with the leader's address, because this coordinator does not lead.
    pub(super) fn point_on(&mut self, to: (SocketAddr, Peer)) {
        if let Some(leader) = self.election.known {
            self.say(to, &Body::Announce(leader), 0);
        }
    }
}
