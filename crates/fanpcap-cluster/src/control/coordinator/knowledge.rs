//! What a coordinator knows of the cluster, sends to standbys, and stores for its next start.

use super::super::body::State;
use super::super::term::Term;
use crate::identity::Revision;
use crate::topology::Topology;

/// What a coordinator knows of the cluster.
#[derive(Debug)]
pub(super) struct Knowledge {
    /// The state that standbys get. Its nodes are as old as the last synchronisation of standbys.
    pub(super) state: State,
    /// The term and the number of the state that was last stored.
    stored: (Term, u32),
    /// The number of the newest list of AVPs. Unlike the state's number, this number only grows.
    pub(super) transfers: u32,
    /// The number of the list of AVPs in which nodes get the topology.
    pub(super) topologys: u32,
    /// The newest topology that another participant has, if this version can't read it.
    pub(super) unread: Option<Revision>,
}

impl Knowledge {
    /// The knowledge from a coordinator's file.
    pub(super) fn new(state: State) -> Self {
        Self {
            stored: (state.term, state.number),
            state,
            transfers: 0,
            topologys: 0,
            unread: None,
        }
    }

    /// The greatest term that the coordinator knows of.
    pub(super) fn term(&self) -> Term {
        let topologys = self.revision().map(Term::of);
        self.state.term.max(topologys.unwrap_or_default())
    }

    pub(super) fn revision(&self) -> Option<Revision> {
        self.state.topology.as_ref().map(|(revision, _)| *revision)
    }

    /// The revision of `unread`, if that topology is newer than the coordinator's own topology.
    pub(super) fn unreadable(&self) -> Option<Revision> {
        self.unread.filter(|unread| Some(*unread) > self.revision())
    }

    /// Counts a change of the state, so that standbys notice the change and get the new state.
    pub(super) fn count_change(&mut self) {
        self.state.number = self.state.number.wrapping_add(1);
        self.transfers = self.transfers.wrapping_add(1);
    }

    /// Makes `topology` the cluster's topology.
    pub(super) fn stand(&mut self, revision: Revision, topology: Box<Topology>) {
        self.state.topology = Some((revision, topology));
        self.count_change();
        self.topologys = self.transfers;
    }

    pub(super) fn is_stored(&self) -> bool {
        (self.state.term, self.state.number) == self.stored
    }

    pub(super) fn note_stored(&mut self, state: &State) {
        self.stored = (state.term, state.number);
    }
}
