//! How coordinators exchange states and topologies.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::body::{Body, State};
use super::super::envelope::{Peer, Role};
use super::super::term::Term;
use super::CoordinatorEnd;
use super::election::ElectionRole;
use crate::identity::Revision;
use crate::topology::Topology;

impl CoordinatorEnd {
    pub(super) fn current_state(&self) -> State {
        let mut state = self.knowledge.state.clone();
        if self.leads() {
            state.members = self.members.list();
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

    pub(super) fn synchronise(&mut self, to: (SocketAddr, Peer)) {
        let body = Body::Synchronise(Box::new(self.current_state()));
        self.say(to, &body, self.knowledge.transfers);
    }

    /// Takes the active coordinator's state. If this coordinator knows a newer topology, it keeps
    /// that topology and sends it to the leader, because perhaps no other process has it. The
    /// number of this coordinator's state then differs from the number of the leader's state. So
    /// this coordinator asks for the leader's state at each pulse, until the leader has the newer
    /// topology.
    pub(super) fn take_state(&mut self, from: (SocketAddr, Peer), state: State) {
        let own = std::mem::replace(&mut self.knowledge.state, state).topology;
        let newer = own.filter(|(revision, _)| Some(*revision) > self.knowledge.revision());
        if let Some((revision, topology)) = newer {
            let body = Body::TopologyUpdate(revision, topology.clone());
            self.say(from, &body, self.knowledge.transfers);
            self.knowledge.state.topology = Some((revision, topology));
            self.knowledge.state.number = self.knowledge.state.number.wrapping_sub(1);
        } else {
            self.knowledge.transfers = self.knowledge.transfers.wrapping_add(1);
        }
    }

    /// Takes a newer topology that a node or a standby has sent.
    pub(super) fn take_shown_topology(
        &mut self,
        now: Duration,
        revision: Revision,
        topology: Box<Topology>,
    ) {
        if !self.leads() || Some(revision) <= self.knowledge.revision() {
            return;
        }
        self.see(now, Term::of(revision));
        if self.leads() {
            let is_of_earlier_run = self.is_of_earlier_run(Some(revision));
            self.stand(now, revision, topology);
            // Waits for nodes again, because some nodes of this topology may not have been heard
            // yet.
            self.settle_again(now);
            self.synchronise_all();
            if is_of_earlier_run {
                self.resign(now);
            }
        }
    }

    /// Notes that a node or a coordinator has a topology that this version can't read. When a
    /// leader first learns of such a topology, it resigns, because a standby may be able to read
    /// the topology. A leader also resigns each time another coordinator sends it such a topology.
    pub(super) fn hear_unreadable(&mut self, now: Duration, from: Peer, revision: Revision) {
        let is_new = Some(revision) > self.knowledge.unread;
        self.knowledge.unread = self.knowledge.unread.max(Some(revision));
        self.see(now, Term::of(revision));
        let is_read = is_new || from.role == Role::Coordinator;
        if self.unreadable().is_some() && is_read && !self.settings.others.is_empty() {
            self.resign(now);
        }
    }

    /// Whether a topology's revision has this leader's term, although this leader did not write the
    /// topology. If so, an earlier process of this coordinator wrote the topology, and its file is
    /// lost. If this coordinator kept its term, it could give two topologies the same revision.
    pub(super) fn is_of_earlier_run(&self, revision: Option<Revision>) -> bool {
        let own = matches!((self.election.role, revision), (ElectionRole::Leading { leader, .. }, Some(of))
            if leader.term == Term::of(of));
        own && revision > self.knowledge.revision()
    }
}
