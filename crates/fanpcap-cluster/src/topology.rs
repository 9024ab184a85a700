//! Which node has which buckets, and in which stage of a change the cluster is.

use std::fmt;
use std::net::SocketAddr;

use fanpcap_buckets::{Owners, Slot};
use fanpcap_select::{Claim, Claims, Filter, Selection};

use crate::identity::NodeId;

/// Most nodes of a cluster.
pub const NODES: usize = 128;

/// Most analyzers of a cluster.
pub const ANALYZERS: usize = 16;

/// Most bytes of a filter's text.
pub const FILTER_TEXT: usize = 2048;

/// Most instructions of a filter.
pub const FILTER_CODE: usize = 1024;

/// The stage of a change: `stable`, `union`, `stable`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Each bucket has one owner.
    Stable,
    /// A bucket that moves is captured by its old and by its new owner, which mark what they send.
    Union,
}

/// A node's place in a topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seat {
    /// The node's number in the tables, below [`NODES`]. It keeps it while it is in the topology.
    pub slot: Slot,
    /// Which node.
    pub node: NodeId,
    /// How many buckets it is due, compared with the others; 0 for a node that is drained.
    pub weight: u16,
}

/// What all nodes of a cluster agree on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Counts the topologies of this cluster: each stage of a change adds one.
    pub epoch: u64,
    /// How packets are selected.
    pub selection: Selection,
    /// The nodes, in the order of their slots. A node's index is the paper's `Pi`.
    pub seats: Vec<Seat>,
    /// The owner of each bucket; in a union, the old owner.
    pub owners: Box<Owners>,
    /// In a union, the later owner of each bucket; `None` in a stable topology.
    pub heirs: Option<Box<Owners>>,
    /// Where records go: bucket `b` to the analyzer `b` modulo their number. Empty in distribution
    /// mode.
    pub analyzers: Vec<SocketAddr>,
    /// Which packets the nodes capture of their own; `None`: all.
    pub filter: Option<Filter>,
}

/// Why a topology is no good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TopologyError {
    /// It has no nodes, or more than [`NODES`].
    Nodes,
    /// Two nodes share a slot or an id, a slot is too great, or slots are out of order.
    Seats,
    /// A bucket has no owner, or its owner has no seat.
    Owners,
    /// It has more than [`ANALYZERS`] analyzers.
    Analyzers,
    /// Its filter is longer than [`FILTER_TEXT`] bytes or [`FILTER_CODE`] instructions.
    Filter,
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes => write!(f, "a topology has between 1 and {NODES} nodes"),
            Self::Seats => write!(f, "each node has a slot below {NODES} and an id of its own"),
            Self::Owners => write!(f, "each bucket belongs to a node of the topology"),
            Self::Analyzers => write!(f, "a topology has at most {ANALYZERS} analyzers"),
            Self::Filter => write!(
                f,
                "a filter has at most {FILTER_TEXT} bytes, and {FILTER_CODE} instructions"
            ),
        }
    }
}

impl std::error::Error for TopologyError {}

impl Topology {
    /// In which stage of a change it is.
    pub fn phase(&self) -> Phase {
        if self.heirs.is_some() {
            Phase::Union
        } else {
            Phase::Stable
        }
    }

    /// The seat of `node`.
    pub fn seat(&self, node: NodeId) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.node == node)
    }

    /// Whether the node in `slot` captures packets of `bucket`, and whether another may too.
    pub fn captures(&self, slot: Slot, bucket: usize) -> Option<Phase> {
        let owner = self.owners[bucket];
        let heir = self.heirs.as_ref().map_or(owner, |heirs| heirs[bucket]);
        if owner != Some(slot) && heir != Some(slot) {
            None
        } else if owner == heir {
            Some(Phase::Stable)
        } else {
            Some(Phase::Union)
        }
    }

    /// The claims of the node in `slot`, as its BPF program has them.
    pub fn claims(&self, slot: Slot) -> Claims {
        Claims::new(|bucket| match self.captures(slot, bucket) {
            None => Claim::Elsewhere,
            Some(Phase::Stable) => Claim::Mine,
            Some(Phase::Union) => Claim::Shared,
        })
    }

    /// The claims of the node in `slot` after a union; `None` for a stable topology.
    pub fn goal(&self, slot: Option<Slot>) -> Option<Claims> {
        let heirs = self.heirs.as_ref()?;
        Some(Claims::new(|bucket| match slot {
            Some(_) if heirs[bucket] == slot => Claim::Mine,
            Some(_) | None => Claim::Elsewhere,
        }))
    }

    /// Says whether every node can follow this topology.
    ///
    /// # Errors
    ///
    /// What of it is no good. A node keeps what it has then.
    pub fn check(&self) -> Result<(), TopologyError> {
        if self.seats.is_empty() || self.seats.len() > NODES {
            return Err(TopologyError::Nodes);
        }
        self.check_seats()?;
        let mut taken = [false; NODES];
        for seat in &self.seats {
            taken[usize::from(seat.slot.0)] = true;
        }
        let sits = |slot: Slot| taken.get(usize::from(slot.0)) == Some(&true);
        let tables = [Some(&self.owners), self.heirs.as_ref()];
        let mut owners = tables.into_iter().flatten().flat_map(|table| table.iter());
        if !owners.all(|owner| owner.is_some_and(sits)) {
            return Err(TopologyError::Owners);
        }
        if self.analyzers.len() > ANALYZERS {
            return Err(TopologyError::Analyzers);
        }
        let is_short = |it: &Filter| it.text.len() <= FILTER_TEXT && it.code.len() <= FILTER_CODE;
        if !self.filter.as_ref().is_none_or(is_short) {
            return Err(TopologyError::Filter);
        }
        Ok(())
    }

    fn check_seats(&self) -> Result<(), TopologyError> {
        for (at, seat) in self.seats.iter().enumerate() {
            let before = &self.seats[..at];
            let in_order = before.last().is_none_or(|last| last.slot < seat.slot);
            let known = before.iter().any(|other| other.node == seat.node);
            if !in_order || known || usize::from(seat.slot.0) >= NODES {
                return Err(TopologyError::Seats);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_buckets::layout::BUCKETS;

    fn pair() -> Topology {
        let seat = |slot, node| Seat {
            slot: Slot(slot),
            node: NodeId(node),
            weight: 1,
        };
        Topology {
            epoch: 1,
            selection: Selection::default(),
            seats: vec![seat(0, 7), seat(2, 3)],
            owners: Box::new([Some(Slot(0)); BUCKETS]),
            heirs: None,
            analyzers: Vec::new(),
            filter: None,
        }
    }

    #[test]
    fn in_a_union_both_have_a_bucket_that_moves() {
        let mut topology = pair();
        assert_eq!(topology.captures(Slot(0), 5), Some(Phase::Stable));
        assert_eq!(topology.captures(Slot(2), 5), None);
        let mut heirs = topology.owners.clone();
        heirs[5] = Some(Slot(2));
        topology.heirs = Some(heirs);
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
        let goal = |slot| topology.goal(slot).unwrap().of(5);
        assert_eq!(goal(Some(Slot(0))), Claim::Elsewhere);
        assert_eq!(goal(Some(Slot(2))), Claim::Mine);
        assert_eq!(goal(None), Claim::Elsewhere);
        assert!(pair().goal(Some(Slot(0))).is_none());
    }

    #[test]
    fn what_no_node_can_follow_is_refused() {
        let empty = Topology {
            seats: Vec::new(),
            ..pair()
        };
        assert_eq!(empty.check(), Err(TopologyError::Nodes));
        let mut twice = pair();
        twice.seats[1].node = NodeId(7);
        assert_eq!(twice.check(), Err(TopologyError::Seats));
        let mut lost = pair();
        lost.owners[4000] = None;
        assert_eq!(lost.check(), Err(TopologyError::Owners));
        let mut strange = pair();
        strange.heirs = Some(Box::new([Some(Slot(1)); BUCKETS]));
        assert_eq!(strange.check(), Err(TopologyError::Owners));
    }
}
