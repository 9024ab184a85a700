//! When each node had which bucket. Refuses a packet whose node no longer had the packet's bucket.
//!
//! A node that is cut off from the coordinator continues to capture by its old topology. Its
//! packets are accepted until another node has taken over its buckets. Later packets are
//! duplicates. Around the time of the takeover, clocks are not exact enough to decide. So within
//! the skew, the analyzer searches for equal packets.

use std::collections::{BTreeMap, VecDeque};

use fanpcap_buckets::Slot;

use crate::identity::{NodeId, Revision};
use crate::topology::{Phase, Topology};

/// How many topologies are remembered.
const REMEMBERED: usize = 16;

/// Whether the node had the record's bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnershipCheck {
    /// Only this node has the bucket.
    Owner,
    /// Another node may have the packet too.
    Shared,
    /// Another node has had the bucket for longer than clocks may differ.
    Fenced,
    /// By the record's topology, the node does not have the bucket.
    Foreign,
    /// The record's topology has not reached the analyzer yet.
    Unknown,
}

/// A topology, with the slots of its nodes.
#[derive(Debug)]
struct KnownTopology {
    revision: Revision,
    topology: Topology,
    slots: BTreeMap<NodeId, Slot>,
}

impl KnownTopology {
    fn captures(&self, node: NodeId, bucket: usize) -> Option<Phase> {
        self.topology.captures(*self.slots.get(&node)?, bucket)
    }
}

/// The last topologies, and when nodes began to follow them.
#[derive(Debug, Default)]
pub(super) struct TopologyHistory {
    /// The topologies, the newest last.
    topologies: VecDeque<KnownTopology>,
    /// The revisions that each node followed, each with the stamp of the node's earliest record.
    began: BTreeMap<NodeId, VecDeque<(Revision, u64)>>,
}

impl TopologyHistory {
    /// Takes a topology, if it is newer than all known ones.
    pub(super) fn follow(&mut self, revision: Revision, topology: Topology) {
        if self.newest().is_some_and(|newest| newest >= revision) {
            return;
        }
        if self.topologies.len() == REMEMBERED {
            self.topologies.pop_front();
        }
        let slots = topology
            .nodes
            .iter()
            .map(|entry| (entry.node, entry.slot))
            .collect();
        self.topologies.push_back(KnownTopology {
            revision,
            topology,
            slots,
        });
        let topologies = &self.topologies;
        self.began.retain(|node, _| {
            topologies
                .iter()
                .any(|known| known.slots.contains_key(node))
        });
    }

    pub(super) fn newest(&self) -> Option<Revision> {
        self.topologies.back().map(|known| known.revision)
    }

    /// Forgets when a node began to follow each topology.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.began.remove(&node);
    }

    /// The newest revision that any node follows, if it is newer than all known topologies.
    pub(super) fn unheard(&self) -> Option<Revision> {
        let noted = self.began.values().flatten().map(|(revision, _)| *revision);
        noted.max().filter(|noted| Some(*noted) > self.newest())
    }

    /// Notes that at `stamp` a node captured a packet by the topology `revision`.
    pub(super) fn note(&mut self, node: NodeId, revision: Revision, stamp: u64) {
        let began = self.began.entry(node).or_default();
        match began.iter_mut().find(|(known, _)| *known == revision) {
            Some((_, first)) => *first = stamp.min(*first),
            None => {
                began.push_back((revision, stamp));
                if began.len() > REMEMBERED {
                    began.pop_front();
                }
            }
        }
    }

    /// Whether the node had the record's bucket. `Owner` if no topology is known yet.
    pub(super) fn check(&self, record: &RecordOrigin, skew: u64) -> OwnershipCheck {
        let Some(newest) = self.topologies.back() else {
            return OwnershipCheck::Owner;
        };
        if record.revision > newest.revision {
            return OwnershipCheck::Unknown;
        }
        let found = self
            .topologies
            .iter()
            .position(|known| known.revision == record.revision);
        let own = match found {
            Some(at) => match self.topologies[at].captures(record.node, record.bucket) {
                None => return OwnershipCheck::Foreign,
                Some(Phase::Union) => OwnershipCheck::Shared,
                Some(Phase::Stable) => OwnershipCheck::Owner,
            },
            // The record's topology has not come or is forgotten. This topology may be a union.
            None => OwnershipCheck::Shared,
        };
        let newer = |known: &KnownTopology| known.revision > record.revision;
        let since = self.topologies.iter().position(newer);
        let since = since.unwrap_or(self.topologies.len());
        let mut check = own;
        for known in self.topologies.iter().skip(since) {
            if known.captures(record.node, record.bucket).is_some() {
                continue;
            }
            check = OwnershipCheck::Shared;
            if self.has_taken_over(known, record, skew) {
                return OwnershipCheck::Fenced;
            }
        }
        check
    }

    /// Whether the node got the bucket shortly before the record. If so, packets that the previous
    /// owner captured at that time may still come. If the node skipped the topology that first gave
    /// it the bucket, the node got the bucket when it began to follow a later topology.
    pub(super) fn is_new(&self, record: &RecordOrigin, skew: u64) -> bool {
        let owns = |known: &KnownTopology| {
            let slot = known.slots.get(&record.node).copied();
            slot.is_some() && known.topology.owners[record.bucket] == slot
        };
        let by_then = |known: &&KnownTopology| known.revision <= record.revision;
        let own = self.topologies.iter().take_while(by_then);
        let mut since = None;
        let mut is_known = false;
        for known in own {
            match owns(known) {
                true => since = since.or(Some(known.revision)),
                false => (since, is_known) = (None, true),
            }
        }
        let since = since.filter(|_| is_known);
        let first = since.and_then(|since| self.first(record.node, since));
        first.is_some_and(|first| record.stamp <= first.saturating_add(2 * skew))
    }

    /// Whether, at the record's stamp, the owner in `known` had had the bucket for more than
    /// `skew`.
    fn has_taken_over(&self, known: &KnownTopology, record: &RecordOrigin, skew: u64) -> bool {
        let owner = known.topology.owners[record.bucket];
        let owner = known.slots.iter().find(|(_, slot)| Some(**slot) == owner);
        let first = owner.and_then(|(node, _)| self.first(*node, known.revision));
        first.is_some_and(|first| record.stamp > first.saturating_add(skew))
    }

    /// The earliest stamp of the node's records that name the revision `since` or a later revision.
    fn first(&self, node: NodeId, since: Revision) -> Option<u64> {
        let began = self.began.get(&node)?.iter();
        began
            .filter(|(by, _)| *by >= since)
            .map(|(_, stamp)| *stamp)
            .min()
    }
}

/// The node, topology, bucket and time of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordOrigin {
    pub(super) node: NodeId,
    pub(super) revision: Revision,
    pub(super) bucket: usize,
    pub(super) stamp: u64,
}
