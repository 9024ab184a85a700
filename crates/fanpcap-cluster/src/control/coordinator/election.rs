//! Who leads: pulses, elections, synchronisation.
//!
//! * A standby that hears no pulse for a while becomes a candidate, with a term that is greater
//!   than all terms it has heard of. Standbys with lower numbers wait a little less.
//! * A candidate withdraws if an active coordinator is heard, if another candidate has a newer
//!   topology, or if, with the same topology, another has a greater term. Otherwise it leads when
//!   its ballot ends.
//! * A leader steps down when it sees the greater term of another leader: in a pulse, in an
//!   announcement, or in a heartbeat or acknowledgement of a node.
//!
//! Coordinators that can't hear each other both lead. Their terms differ, so that every node that
//! hears both follows one of them, and the other one learns of the greater term from that node.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::body::{Body, Leader, State};
use super::super::envelope::Peer;
use super::super::term::{ROUND, Term};
use super::CoordinatorEnd;
use super::members::Presence;
use crate::identity::Revision;
use crate::topology::Topology;

/// How much longer a standby waits than the one before it.
const STEP: Duration = Duration::from_millis(50);

/// What a coordinator is at present.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stance {
    /// It stands by, and has waited for a pulse since `heard`.
    Standby { heard: Duration },
    /// It is a candidate, and leads if nobody objects until `until`.
    Candidate { leader: Leader, until: Duration },
    /// It leads. Its knowledge of nodes is complete from `settled` on, or as soon as it has heard
    /// all nodes that the last leader knew; `None` before it has heard one of them.
    Leading {
        leader: Leader,
        settled: Option<Duration>,
    },
}

impl Stance {
    /// The message that a coordinator in this stance sends to the others.
    pub(super) fn said(&self, number: u32, revision: Option<Revision>) -> Option<Body> {
        match self {
            Self::Standby { .. } => None,
            Self::Candidate { leader, .. } => {
                Some(Body::Elect(*leader, revision.unwrap_or_default()))
            }
            Self::Leading { leader, .. } => Some(Body::Pulse(*leader, number)),
        }
    }
}

impl CoordinatorEnd {
    /// How long this coordinator waits for a pulse. One that remembers no term waits a round
    /// longer, so that the clock has left the round of its earlier life.
    pub(super) fn patience(&self) -> Duration {
        let forgetful = if self.remembers {
            Duration::ZERO
        } else {
            ROUND
        };
        self.settings.silence + forgetful + STEP * u32::from(self.settings.number)
    }

    /// Whether the active coordinator was heard a short time ago.
    fn has_pulse(&self, now: Duration) -> bool {
        let silence = self.settings.silence;
        self.known.is_some() && self.pulsed.is_some_and(|at| now < at + silence)
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.stance, Stance::Leading { .. })
    }

    pub(super) fn stand_for_election(&mut self, now: Duration) {
        let clock = self.clock_at(now);
        let settings = &self.settings;
        let leader = Leader {
            number: settings.number,
            term: self.term.next(settings.number, clock),
            address: settings.address,
        };
        let until = now + settings.ballot;
        self.stance = Stance::Candidate { leader, until };
        self.known = None;
        self.tell_others();
    }

    /// Tells the other coordinators what this one is.
    fn tell_others(&mut self) {
        let Some(body) = self.stance.said(self.state.number, self.revision()) else {
            return;
        };
        for address in self.settings.others.clone() {
            let peer = self.peers.get(&address).copied();
            self.outbox
                .say(&mut self.endpoint, (address, peer), &body, 0);
        }
    }

    /// Becomes the active coordinator. The nodes that the last leader knew get some time to report
    /// that they live, and which topology they follow: this coordinator may have missed a topology
    /// that the last leader wrote.
    pub(super) fn lead(&mut self, now: Duration, leader: Leader) {
        let known = std::mem::take(&mut self.state.members);
        let settled = known.is_empty().then(|| now + self.settings.settle);
        self.inherits = settled.is_none();
        self.stance = Stance::Leading { leader, settled };
        self.known = Some(leader);
        self.term = leader.term;
        self.remembers = true;
        self.state.term = leader.term;
        // Nobody takes a state of an earlier life for this one, were their terms the same.
        self.state.number = self.endpoint.begin();
        self.state.wishes.selection = self.settings.wishes.selection;
        self.state
            .wishes
            .analyzers
            .clone_from(&self.settings.wishes.analyzers);
        let presence = |member| Presence::inherited(now, member);
        let members = known.into_iter().map(presence);
        self.members = members
            .map(|one| (one.member.announcement.node, one))
            .collect();
        self.changed();
        self.transfer = self.transfers;
        (self.pulse_at, self.announce_at) = (now, now);
        self.pulse(now);
        for (address, peer) in self
            .members
            .values()
            .map(Presence::place)
            .collect::<Vec<_>>()
        {
            self.say((address, peer), &Body::Announce(leader), 0);
        }
    }

    /// Whether this coordinator leads, and knows which topology the nodes follow. For the nodes
    /// that the last leader knew, it waits a while after it has heard the first of them; then the
    /// others count as dead.
    pub(super) fn is_settled(&self, now: Duration) -> bool {
        let Stance::Leading { settled, .. } = &self.stance else {
            return false;
        };
        let waits = settled.is_none_or(|settled| now < settled);
        !waits || self.inherits && self.members.values().all(|one| one.is_heard)
    }

    /// Notes that a node was heard.
    pub(super) fn begin_to_settle(&mut self, now: Duration) {
        if let Stance::Leading { settled, .. } = &mut self.stance {
            settled.get_or_insert(now + self.settings.settle);
        }
    }

    /// Waits for the nodes of a topology that a standby has shown: it may be the only coordinator
    /// that has heard them yet. Whoever plans believes no absence for a while then.
    fn settle_again(&mut self, now: Duration) {
        self.inherits = false;
        if let Stance::Leading { settled, .. } = &mut self.stance {
            *settled = Some(now + self.settings.settle);
        }
    }

    /// Sends the pulse and the announcement, when they are due.
    pub(super) fn pulse(&mut self, now: Duration) {
        if now >= self.pulse_at {
            self.pulse_at = now + self.settings.pulse;
            self.tell_others();
        }
        if now >= self.announce_at {
            self.announce_at = now + self.settings.announce;
            if let (Some(to), Some(leader)) = (self.settings.multicast, self.known) {
                self.outbox
                    .say(&mut self.endpoint, (to, None), &Body::Announce(leader), 0);
            }
        }
    }

    /// Gives up the lead. Standbys start an election when they miss the pulse.
    pub fn resign(&mut self, now: Duration) {
        if self.leads() {
            self.step_down(now);
        }
    }

    fn step_down(&mut self, now: Duration) {
        if self.leads() {
            self.state = self.told();
            self.members.clear();
            self.refusals.clear();
            (self.unknown, self.forgotten) = (None, None);
        }
        self.stance = Stance::Standby { heard: now };
        self.known = None;
    }

    /// Notes a term of one that led. Steps down if it is greater than the own.
    pub(super) fn see(&mut self, now: Duration, term: Term) {
        if term > self.term {
            self.term = term;
            if !matches!(self.stance, Stance::Standby { .. }) {
                self.step_down(now);
            }
        }
    }

    /// What standbys are told.
    pub(super) fn told(&self) -> State {
        let mut state = self.state.clone();
        if self.leads() {
            state.members = self.members.values().map(|one| one.member).collect();
        }
        state
    }

    pub(super) fn synchronise_all(&mut self) {
        for address in self.settings.others.clone() {
            if let Some(peer) = self.peers.get(&address).copied() {
                self.synchronise((address, peer));
            }
        }
    }

    fn synchronise(&mut self, to: (SocketAddr, Peer)) {
        let body = Body::Synchronise(Box::new(self.told()));
        self.say(to, &body, self.transfers);
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "what this role takes from nobody is dropped"
    )]
    pub(super) fn hear_coordinator(&mut self, now: Duration, from: (SocketAddr, Peer), body: Body) {
        if self.settings.others.contains(&from.0) {
            self.peers.insert(from.0, from.1);
        }
        match body {
            Body::Pulse(leader, number) => self.hear_pulse(now, from, leader, number),
            Body::Announce(leader) => self.hear_announcement(now, leader),
            Body::Elect(leader, revision) => self.hear_candidate(now, from, leader, revision),
            Body::Synchronise(state) if !self.leads() && state.term >= self.term => {
                self.see(now, state.term);
                self.take_state(from, *state);
            }
            Body::TopologyUpdate(revision, topology) if Some(revision) > self.revision() => {
                self.take_shown(now, revision, topology);
                self.settle_again(now);
            }
            Body::Fetch if self.leads() => self.synchronise(from),
            _ => {}
        }
    }

    fn hear_pulse(&mut self, now: Duration, from: (SocketAddr, Peer), leader: Leader, number: u32) {
        if leader.term < self.term {
            self.object(from);
            return;
        }
        self.see(now, leader.term);
        if self.leads() {
            return;
        }
        self.stance = Stance::Standby { heard: now };
        self.pulsed = Some(now);
        self.known = Some(leader);
        if self.shows || (self.state.term, self.state.number) != (leader.term, number) {
            self.say(from, &Body::Fetch, 0);
        }
    }

    /// Takes over the active coordinator's state. If this coordinator knows a newer topology, it
    /// keeps it and shows it with each pulse until the active one has it: perhaps no other process
    /// has it.
    fn take_state(&mut self, from: (SocketAddr, Peer), told: State) {
        self.remembers = true;
        let own = std::mem::replace(&mut self.state, told).topology;
        let newer = own.filter(|(revision, _)| Some(*revision) > self.revision());
        self.shows = newer.is_some();
        if let Some((revision, topology)) = newer {
            let body = Body::TopologyUpdate(revision, topology.clone());
            self.say(from, &body, self.transfers);
            self.state.topology = Some((revision, topology));
        } else {
            self.transfers = self.transfers.wrapping_add(1);
        }
    }

    /// Takes a newer topology that a node or a standby shows.
    pub(super) fn take_shown(
        &mut self,
        now: Duration,
        revision: Revision,
        topology: Box<Topology>,
    ) {
        if !self.leads() || Some(revision) <= self.revision() {
            return;
        }
        self.see(now, Term::of(revision));
        if self.leads() {
            self.stand(now, revision, topology);
            self.synchronise_all();
        }
    }

    /// Tells a coordinator that believes it leads, or is a candidate, which coordinator leads.
    fn object(&mut self, to: (SocketAddr, Peer)) {
        let said = self.stance.said(self.state.number, self.revision());
        let known = self.known.map(Body::Announce);
        if let Some(body) = said.or(known) {
            self.say(to, &body, 0);
        }
    }

    fn hear_announcement(&mut self, now: Duration, leader: Leader) {
        self.see(now, leader.term);
        if leader.term != self.term || self.leads() {
            return;
        }
        self.known = Some(leader);
        if matches!(self.stance, Stance::Candidate { .. }) {
            // Somebody has heard the leader since. If it is gone, that one misses it a pulse later.
            let heard = (now + self.settings.pulse).saturating_sub(self.settings.silence);
            self.stance = Stance::Standby { heard };
        }
    }

    fn hear_candidate(
        &mut self,
        now: Duration,
        from: (SocketAddr, Peer),
        other: Leader,
        revision: Revision,
    ) {
        let own = self.revision().unwrap_or_default();
        match self.stance {
            Stance::Leading { .. } => self.object(from),
            Stance::Candidate { leader, .. } if (own, leader.term) > (revision, other.term) => {
                self.object(from);
            }
            Stance::Candidate { .. } => self.stance = Stance::Standby { heard: now },
            Stance::Standby { .. } if self.has_pulse(now) => self.object(from),
            Stance::Standby { .. } if own > revision => self.stand_for_election(now),
            Stance::Standby { .. } => self.stance = Stance::Standby { heard: now },
        }
    }

    /// A node's message to a coordinator that does not lead is answered by who does.
    pub(super) fn point_on(&mut self, to: (SocketAddr, Peer)) {
        if let Some(leader) = self.known {
            self.say(to, &Body::Announce(leader), 0);
        }
    }
}
