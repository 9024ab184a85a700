//! Which node has which buckets, and in which stage of a change the cluster is.

use std::fmt;
use std::net::SocketAddr;

use fanpcap_buckets::{Owners, Slot};
use fanpcap_select::{Claim, Claims, Filter, Selection};

use crate::identity::NodeId;

/// The maximum number of nodes in a cluster.
pub const NODES: usize = 128;

/// The maximum number of analyzers in a cluster.
pub const ANALYZERS: usize = 16;

/// The maximum number of bytes in a filter's text.
pub const FILTER_TEXT: usize = 2048;

/// The maximum number of instructions in a filter.
pub const FILTER_CODE: usize = 1024;

/// The stage of the cluster. A change goes from `stable` through `union` to `stable`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Each bucket has one owner.
    Stable,
    /// While a bucket moves, its old and its new owner capture it and mark its records as shared.
    Union,
}

/// A node of a topology, with its slot and weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeEntry {
    /// The node's number in the tables, below [`NODES`]; fixed while the node is in the topology.
    pub slot: Slot,
    /// The node's id.
    pub node: NodeId,
    /// The node gets buckets in proportion to this weight; 0 if the node is drained.
    pub weight: u16,
}

/// Which node captures which buckets, and how: all nodes follow the same topology.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Counts the topologies of this cluster: each stage of a change adds one.
    pub epoch: u64,
    /// How packets are selected.
    pub selection: Selection,
    /// The nodes, in the order of their slots. DiCAP's paper calls a node's index `Pi`.
    pub nodes: Vec<NodeEntry>,
    /// The owner of each bucket; in a union, the old owner.
    pub owners: Box<Owners>,
    /// In a union, the new owner of each bucket; `None` in a stable topology.
    pub new_owners: Option<Box<Owners>>,
    /// Where records go: bucket `b` to `analyzers[b % len]`. Empty in distribution mode.
    pub analyzers: Vec<SocketAddr>,
    /// Which packets of their buckets the nodes capture; `None` for all packets.
    pub filter: Option<Filter>,
}

/// Why a topology is not valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TopologyError {
    /// The topology has no nodes, or more than [`NODES`].
    Nodes,
    /// Two nodes share a slot or an id, a slot is not below [`NODES`], or slots are out of order.
    Slots,
    /// A bucket has no owner, or its owner is not among the nodes.
    Owners,
    /// The topology has more than [`ANALYZERS`] analyzers.
    Analyzers,
    /// The filter is longer than [`FILTER_TEXT`] bytes or [`FILTER_CODE`] instructions, or its text
    /// has control characters. Such characters could forge lines of a command's output.
    Filter,
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes => write!(f, "a topology has between 1 and {NODES} nodes"),
            Self::Slots => write!(f, "each node has a slot below {NODES} and an id of its own"),
            Self::Owners => write!(f, "each bucket belongs to a node of the topology"),
            Self::Analyzers => write!(f, "a topology has at most {ANALYZERS} analyzers"),
            Self::Filter => write!(
                f,
                "a filter has at most {FILTER_TEXT} bytes, no line ends or other control characters, \
                 and at most {FILTER_CODE} instructions"
            ),
        }
    }
}

impl std::error::Error for TopologyError {}

impl Topology {
    /// The stage of this topology.
    pub fn phase(&self) -> Phase {
        if self.new_owners.is_some() {
            Phase::Union
        } else {
            Phase::Stable
        }
    }

    /// The entry of `node`.
    pub fn entry(&self, node: NodeId) -> Option<&NodeEntry> {
        self.nodes.iter().find(|entry| entry.node == node)
    }

    /// Whether the node in `slot` captures `bucket`: alone (`Stable`) or shared (`Union`).
    pub fn captures(&self, slot: Slot, bucket: usize) -> Option<Phase> {
        let owner = self.owners[bucket];
        let new_owner = self
            .new_owners
            .as_ref()
            .map_or(owner, |new_owners| new_owners[bucket]);
        if owner != Some(slot) && new_owner != Some(slot) {
            None
        } else if owner == new_owner {
            Some(Phase::Stable)
        } else {
            Some(Phase::Union)
        }
    }

    /// For each bucket, whether the node in `slot` captures it alone, in a union, or not at all.
    pub fn claims(&self, slot: Slot) -> Claims {
        Claims::new(|bucket| match self.captures(slot, bucket) {
            None => Claim::Elsewhere,
            Some(Phase::Stable) => Claim::Mine,
            Some(Phase::Union) => Claim::Shared,
        })
    }

    /// The claims of the node in `slot` after a union; `None` for a stable topology.
    pub fn target(&self, slot: Option<Slot>) -> Option<Claims> {
        let new_owners = self.new_owners.as_ref()?;
        Some(Claims::new(|bucket| match slot {
            Some(_) if new_owners[bucket] == slot => Claim::Mine,
            Some(_) | None => Claim::Elsewhere,
        }))
    }

    /// Checks that every node can follow this topology.
    ///
    /// # Errors
    /// Fails if the topology is not valid. A node that gets such a topology keeps its present one.
    pub fn check(&self) -> Result<(), TopologyError> {
        if self.nodes.is_empty() || self.nodes.len() > NODES {
            return Err(TopologyError::Nodes);
        }
        self.check_slots()?;
        let mut taken = [false; NODES];
        for entry in &self.nodes {
            taken[usize::from(entry.slot.0)] = true;
        }
        let sits = |slot: Slot| taken.get(usize::from(slot.0)) == Some(&true);
        let tables = [Some(&self.owners), self.new_owners.as_ref()];
        let mut owners = tables.into_iter().flatten().flat_map(|table| table.iter());
        if !owners.all(|owner| owner.is_some_and(sits)) {
            return Err(TopologyError::Owners);
        }
        if self.analyzers.len() > ANALYZERS {
            return Err(TopologyError::Analyzers);
        }
        let is_valid = |it: &Filter| {
            let is_text = it.text.len() <= FILTER_TEXT && !it.text.contains(acts);
            is_text && it.code.len() <= FILTER_CODE
        };
        if !self.filter.as_ref().is_none_or(is_valid) {
            return Err(TopologyError::Filter);
        }
        Ok(())
    }

    fn check_slots(&self) -> Result<(), TopologyError> {
        for (at, entry) in self.nodes.iter().enumerate() {
            let before = &self.nodes[..at];
            let in_order = before.last().is_none_or(|last| last.slot < entry.slot);
            let known = before.iter().any(|other| other.node == entry.node);
            if !in_order || known || usize::from(entry.slot.0) >= NODES {
                return Err(TopologyError::Slots);
            }
        }
        Ok(())
    }
}

/// Whether a character in a filter's text is a control character. A tab does not count as one.
fn acts(letter: char) -> bool {
    letter.is_control() && letter != '\t'
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_buckets::layout::BUCKETS;

    fn pair() -> Topology {
        let entry = |slot, node| NodeEntry {
            slot: Slot(slot),
            node: NodeId(node),
            weight: 1,
        };
        Topology {
            epoch: 1,
            selection: Selection::default(),
            nodes: vec![entry(0, 7), entry(2, 3)],
            owners: Box::new([Some(Slot(0)); BUCKETS]),
            new_owners: None,
            analyzers: Vec::new(),
            filter: None,
        }
    }

    #[test]
    fn in_a_union_both_have_a_bucket_that_moves() {
        let mut topology = pair();
        assert_eq!(topology.captures(Slot(0), 5), Some(Phase::Stable));
        assert_eq!(topology.captures(Slot(2), 5), None);
        let mut new_owners = topology.owners.clone();
        new_owners[5] = Some(Slot(2));
        topology.new_owners = Some(new_owners);
        assert_eq!(topology.phase(), Phase::Union);
        assert_eq!(topology.captures(Slot(0), 5), Some(Phase::Union));
        assert_eq!(topology.captures(Slot(2), 5), Some(Phase::Union));
        assert_eq!(topology.captures(Slot(0), 6), Some(Phase::Stable));
        let claims = [Slot(0), Slot(2)].map(|slot| topology.claims(slot));
        assert_eq!(claims.each_ref().map(|it| it.of(5)), [Claim::Shared; 2]);
        assert_eq!(
            claims.each_ref().map(|it| it.of(6)),
            [Claim::Mine, Claim::Elsewhere]
        );
        assert_eq!(topology.check(), Ok(()));
        let target = |slot| topology.target(slot).unwrap().of(5);
        assert_eq!(target(Some(Slot(0))), Claim::Elsewhere);
        assert_eq!(target(Some(Slot(2))), Claim::Mine);
        assert_eq!(target(None), Claim::Elsewhere);
        assert!(pair().target(Some(Slot(0))).is_none());
    }

    #[test]
    fn what_no_node_can_follow_is_refused() {
        let empty = Topology {
            nodes: Vec::new(),
            ..pair()
        };
        assert_eq!(empty.check(), Err(TopologyError::Nodes));
        let mut twice = pair();
        twice.nodes[1].node = NodeId(7);
        assert_eq!(twice.check(), Err(TopologyError::Slots));
        let mut lost = pair();
        lost.owners[4000] = None;
        assert_eq!(lost.check(), Err(TopologyError::Owners));
        let mut strange = pair();
        strange.new_owners = Some(Box::new([Some(Slot(1)); BUCKETS]));
        assert_eq!(strange.check(), Err(TopologyError::Owners));
    }
}
