//! A coordinator's messages: lines about changes, and conditions that operators should know.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use fanpcap_buckets::layout::BUCKETS;

use crate::identity::NodeId;
use crate::reshape;
use crate::topology::{NodeEntry, Topology, TopologyError};

/// A condition that holds now, and that an operator should know.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Condition {
    /// This coordinator is the active one.
    Leads,
    /// Too many nodes disappeared at once to count them as dead.
    MassExpiry {
        /// The nodes that disappeared.
        nodes: Vec<NodeId>,
        /// The time after which these nodes count as dead. `None` if more than half of the
        /// cluster's nodes disappeared, because then they never count as dead.
        limit: Option<Duration>,
    },
    /// A change can't end yet, because these nodes do not yet follow the change's union.
    Waiting(Vec<NodeId>),
    /// A live node waits for its hold-down.
    HeldDown(NodeId),
    /// No live node has a weight.
    Nobody,
    /// This many nodes have no slot, because the cluster is full.
    Full(usize),
    /// The settings' filter is not in the topology, because these nodes are in capture mode.
    Unfiltered(Vec<NodeId>),
    /// The stored topology is not valid. The coordinator does not replace it.
    BadTopology(TopologyError),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leads => write!(f, "this coordinator is the active one"),
            Self::MassExpiry { nodes, limit } => {
                write!(
                    f,
                    "nodes {} are gone at once, more than a third of all: nothing changes. \
                     'fanpcap cluster drain NODE' gives away the buckets of a dead node",
                    list(nodes)
                )?;
                match limit {
                    Some(limit) => write!(f, "; after {} s they count as dead", limit.as_secs()),
                    None => Ok(()),
                }
            }
            Self::Waiting(nodes) => write!(
                f,
                "a change waits for nodes {}: if they hang, drain them ('fanpcap cluster drain \
                 NODE') or stop them",
                list(nodes)
            ),
            Self::HeldDown(node) => write!(f, "node {node} waits for its hold-down"),
            Self::Nobody => write!(f, "no live node has a weight: nothing changes"),
            Self::Full(count) => write!(f, "{count} nodes have no slot: the cluster is full"),
            Self::Unfiltered(nodes) => write!(
                f,
                "the filter is not in force: nodes {} are in mode capture, which has no filter; \
                 write the same 'mode' into all files, or take 'filter' out of the coordinators'",
                list(nodes)
            ),
            Self::BadTopology(error) => {
                write!(
                    f,
                    "the stored topology is not valid, so nothing changes: {error}"
                )
            }
        }
    }
}

/// The stage that begins when a topology is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The cluster's first topology.
    First,
    /// A union: a change begins, or gets another target.
    Union,
    /// A stable topology, which ends a change or moves no bucket.
    Stable,
    /// A stable topology whose selection differs from the previous topology's selection. Until all
    /// nodes follow the new topology, some packets are missed, and others are captured twice.
    Cut,
}

/// What a written topology changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The new topology's epoch.
    pub epoch: u64,
    /// The stage that begins when the topology is written.
    pub stage: Stage,
    /// Nodes that the previous topology did not have.
    pub joined: Vec<NodeId>,
    /// Nodes that lose their buckets because they count as dead.
    pub lost: Vec<NodeId>,
    /// Nodes whose weight changes, each with its new weight; 0 for drained nodes.
    pub weighed: Vec<(NodeId, u16)>,
    /// How many buckets have an old and a new owner; 0 if the topology is no union.
    pub moving: usize,
    /// Whether records go to other analyzers than before.
    pub redirects: bool,
    /// Whether the filter changes.
    pub filters: bool,
    /// Whether only the epoch changes, because nodes may follow a newer topology that is lost.
    pub repeats: bool,
}

impl Change {
    pub(super) fn between(
        before: Option<&Topology>,
        after: &Topology,
        absent: &BTreeSet<NodeId>,
    ) -> Self {
        let entries = before.map_or(&[][..], |topology| &topology.nodes);
        let old = |node: NodeId| entries.iter().find(|entry| entry.node == node);
        let joined = after.nodes.iter().filter(|entry| old(entry.node).is_none());
        let is_other =
            |entry: &&NodeEntry| old(entry.node).is_some_and(|old| old.weight != entry.weight);
        let weighed = after.nodes.iter().filter(is_other);
        let weighed = weighed.filter(|entry| !absent.contains(&entry.node));
        let is_lost = |entry: &&NodeEntry| {
            let due = |entry: &NodeEntry| entry.weight > 0;
            absent.contains(&entry.node) && due(entry) && !after.entry(entry.node).is_some_and(due)
        };
        let new_owners = after.new_owners.as_ref();
        let stage = match before {
            None => Stage::First,
            Some(before) if before.selection != after.selection => Stage::Cut,
            Some(_) if new_owners.is_some() => Stage::Union,
            Some(_) => Stage::Stable,
        };
        Self {
            epoch: after.epoch,
            stage,
            joined: joined.map(|entry| entry.node).collect(),
            lost: entries
                .iter()
                .filter(is_lost)
                .map(|entry| entry.node)
                .collect(),
            weighed: weighed.map(|entry| (entry.node, entry.weight)).collect(),
            moving: new_owners.map_or(0, |new_owners| reshape::moves(&after.owners, new_owners)),
            redirects: before.is_some_and(|before| before.analyzers != after.analyzers),
            filters: before.is_some_and(|before| before.filter != after.filter),
            repeats: before.is_some_and(|before| reshape::again(before) == *after),
        }
    }
}

impl Change {
    /// The reasons for writing the topology, each as one word.
    fn causes(&self) -> Vec<&'static str> {
        let causes = [
            ("first", self.stage == Stage::First),
            ("selection", self.stage == Stage::Cut),
            (
                "join",
                self.stage != Stage::First && !self.joined.is_empty(),
            ),
            ("death", !self.lost.is_empty()),
            ("drain", self.weighed.iter().any(|(_, weight)| *weight == 0)),
            ("weight", self.weighed.iter().any(|(_, weight)| *weight > 0)),
            ("analyzers", self.redirects),
            ("filter", self.filters),
            ("again", self.repeats),
        ];
        let causes = causes.into_iter().filter(|(_, holds)| *holds);
        let causes: Vec<_> = causes.map(|(cause, _)| cause).collect();
        match (causes.is_empty(), self.stage) {
            (true, Stage::Stable) => vec!["settled"],
            (true, _) => vec!["goal"],
            (false, _) => causes,
        }
    }
}

/// The fields of the audit line, as docs/cluster.md describes them.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.stage {
            Stage::First | Stage::Stable => "stable",
            Stage::Union => "union",
            Stage::Cut => "cut",
        };
        let cause = self.causes().join("+");
        let moved = self.moving;
        write!(f, "epoch={} phase={phase} cause={cause} ", self.epoch)?;
        write!(f, "moved={moved}/{BUCKETS}")?;
        let weights = self.weighed.iter();
        let weights: Vec<String> = weights.map(|(node, it)| format!("{node}:{it}")).collect();
        let names = |nodes: &[NodeId]| nodes.iter().map(NodeId::to_string).collect();
        let lists: [(&str, Vec<String>); 3] = [
            ("joined", names(&self.joined)),
            ("lost", names(&self.lost)),
            ("weights", weights),
        ];
        for (name, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
            write!(f, " {name}={}", list.join(","))?;
        }
        Ok(())
    }
}

/// The nodes' ids, joined by commas.
fn list(nodes: &[NodeId]) -> String {
    let names: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    names.join(", ")
}
