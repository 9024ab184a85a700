//! A capture node decides which table it loads next, and which topologies it acknowledges.
//!
//! A node is fail-static: it changes its captured buckets for one reason only, a valid topology
//! that is newer than its own. Without an engine, after a refusal, or if a topology is not valid,
//! the node continues as before. If a newer topology does not contain the node, the node gives up
//! all its buckets: their new owners already capture.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use fanpcap_buckets::Slot;
use fanpcap_select::{Claims, Filter, Selection};

use crate::coordination::{NodeEvent, Refusal};
use crate::identity::{NodeId, Revision};
use crate::topology::{Topology, TopologyError};

#[cfg(test)]
mod tests;

/// The time after which a failed load is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What a node captures, according to a topology.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// The topology's revision, which each batch of records contains.
    pub revision: Revision,
    /// The topology's epoch.
    pub epoch: u64,
    /// The node's slot; `None` if the node is not in the topology.
    pub slot: Option<Slot>,
    /// How packets are selected.
    pub selection: Selection,
    /// For each bucket, whether this node captures its packets, alone or with another node.
    pub claims: Claims,
    /// The claims that the node has when the union ends; `None` for a stable topology.
    pub target: Option<Claims>,
    /// Where records go, by bucket; empty in distribution mode.
    pub analyzers: Vec<SocketAddr>,
    /// Which packets of its buckets the node captures; `None` for all.
    pub filter: Option<Filter>,
}

/// What a node has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Capture by this assignment from now on, then call [`Node::note_loaded`].
    Load(Box<Assignment>),
    /// Tell the engine that the node captures by the topology of this revision.
    Acknowledge(Revision),
    /// Tell this to the operator.
    Say(NodeNotice),
}

/// A message to the node's operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeNotice {
    /// The engine offers a topology that is older than the node's.
    Older {
        /// The offered topology.
        offered: Revision,
        /// The newest topology that the node accepted, which it has loaded or is loading.
        newest: Revision,
    },
    /// The topology is not valid, so no node can follow it.
    Bad(Revision, TopologyError),
    /// Two topologies have the same revision. The node keeps the first one.
    Ambiguous(Revision),
    /// The topology does not contain the node, so the node captures nothing.
    Unseated(Revision),
    /// The cluster does not take the node. The node keeps its topology.
    Refused(Refusal),
    /// Whether the node reaches the engine. The node keeps its topology.
    Reach(bool),
    /// The engine does not answer, or refuses the node, and why. The node keeps its topology.
    Denied(String),
    /// The table of this topology could not be loaded. The node tries again.
    NotLoaded(Revision),
}

impl fmt::Display for NodeNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Older { offered, newest } => write!(
                f,
                "topology {offered} is refused, as {newest} is newer: if the engine's data are an \
                 old copy, detach this node and start it again"
            ),
            Self::Bad(revision, error) => write!(f, "topology {revision} is refused: {error}"),
            Self::Ambiguous(revision) => write!(
                f,
                "there are two topologies {revision}: the first one counts; are there two clusters \
                 with one key?"
            ),
            Self::Unseated(revision) => {
                write!(f, "topology {revision} has no buckets for this node")
            }
            Self::Refused(refusal) => write!(f, "the cluster refuses this node: {refusal}"),
            Self::Denied(said) => write!(f, "{said}; the capture goes on as before"),
            Self::Reach(true) => write!(f, "the coordination engine is in reach"),
            Self::Reach(false) => write!(
                f,
                "the coordination engine is out of reach: the capture goes on as before"
            ),
            Self::NotLoaded(revision) => {
                write!(
                    f,
                    "the table of topology {revision} is not loaded; trying again"
                )
            }
        }
    }
}

/// A capture node.
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    /// The topology that the node captures by.
    current: Option<Revision>,
    /// Whether this agent has loaded the table in use. If an earlier agent has loaded the table,
    /// this agent loads the table once more.
    is_own: bool,
    /// The newest topology that the node accepted.
    accepted: Option<(Revision, Box<Topology>)>,
    /// The topology that is being loaded.
    loading: Option<Revision>,
    /// The time at which a failed load is tried again.
    retry: Option<Duration>,
}

impl Node {
    /// A node that captures by the topology `current`, whose table an earlier agent has left in the
    /// kernel. If `current` is `None`, the node captures by no topology yet.
    pub fn new(id: NodeId, current: Option<Revision>) -> Self {
        Self {
            id,
            current,
            is_own: false,
            accepted: None,
            loading: None,
            retry: None,
        }
    }

    /// The topology that the node captures by.
    pub fn current(&self) -> Option<Revision> {
        self.current
    }

    /// Takes a message of the engine, and returns the actions, in order.
    pub fn take(&mut self, event: NodeEvent) -> Vec<Command> {
        match event {
            NodeEvent::Topology(revision, topology) => self.consider(revision, topology),
            NodeEvent::Denied(said) => vec![Command::Say(NodeNotice::Denied(said))],
            NodeEvent::Refused(refusal) => vec![Command::Say(NodeNotice::Refused(refusal))],
            NodeEvent::Reach(reach) => {
                let mut commands = vec![Command::Say(NodeNotice::Reach(reach))];
                if let Some(current) = self.current.filter(|_| reach) {
                    commands.push(Command::Acknowledge(current));
                }
                commands
            }
        }
    }

    /// Notes that the assignment of this revision is loaded. Returns what to do next.
    pub fn note_loaded(&mut self, revision: Revision) -> Vec<Command> {
        self.loading = None;
        self.current = Some(revision);
        self.is_own = true;
        let mut commands = vec![Command::Acknowledge(revision)];
        commands.extend(self.load());
        commands
    }

    /// Notes at the time `now` that the assignment of this revision could not be loaded.
    pub fn note_load_failure(&mut self, revision: Revision, now: Duration) -> Vec<Command> {
        self.loading = None;
        self.retry = Some(now.saturating_add(RETRY));
        vec![Command::Say(NodeNotice::NotLoaded(revision))]
    }

    /// Returns the commands that are due at the time `now`.
    pub fn tick(&mut self, now: Duration) -> Vec<Command> {
        if self.retry.is_some_and(|retry| now >= retry) {
            return self.load().into_iter().collect();
        }
        Vec::new()
    }

    fn consider(&mut self, revision: Revision, topology: Box<Topology>) -> Vec<Command> {
        let accepted = self.accepted.as_ref().map(|(revision, _)| *revision);
        let newest = accepted.max(self.current).unwrap_or_default();
        if revision < newest {
            let offered = revision;
            let mut commands = vec![Command::Say(NodeNotice::Older { offered, newest })];
            // An engine restored from a backup lacks this acknowledgement, so the node repeats it.
            commands.extend(self.current.map(Command::Acknowledge));
            return commands;
        }
        if let Some((_, known)) = self
            .accepted
            .as_ref()
            .filter(|_| accepted == Some(revision))
        {
            let is_current = self.current == Some(revision);
            return match *known == topology {
                true if is_current => vec![Command::Acknowledge(revision)],
                true => Vec::new(),
                false => vec![Command::Say(NodeNotice::Ambiguous(revision))],
            };
        }
        if let Err(error) = topology.check() {
            return vec![Command::Say(NodeNotice::Bad(revision, error))];
        }
        let mut commands = Vec::new();
        if topology.entry(self.id).is_none() {
            commands.push(Command::Say(NodeNotice::Unseated(revision)));
        }
        self.accepted = Some((revision, topology));
        commands.extend(self.load());
        commands
    }

    /// Loads the accepted topology, unless it is loaded already or another load is not finished.
    fn load(&mut self) -> Option<Command> {
        let (revision, topology) = self.accepted.as_ref()?;
        if self.loading.is_some() || (self.current == Some(*revision) && self.is_own) {
            return None;
        }
        self.retry = None;
        self.loading = Some(*revision);
        let slot = topology.entry(self.id).map(|entry| entry.slot);
        Some(Command::Load(Box::new(Assignment {
            revision: *revision,
            epoch: topology.epoch,
            slot,
            selection: topology.selection,
            claims: slot.map_or_else(Claims::none, |slot| topology.claims(slot)),
            target: topology.target(slot),
            analyzers: topology.analyzers.clone(),
            filter: topology.filter.clone(),
        })))
    }
}
