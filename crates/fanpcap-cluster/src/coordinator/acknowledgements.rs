//! Notes which of the nodes that gain buckets in a union capture them already, and since when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::coordination::LiveNode;
use crate::identity::{NodeId, Revision};
use crate::reshape;
use crate::topology::Topology;

/// The acknowledgements of the current topology.
#[derive(Debug, Default)]
pub(super) struct Acknowledgements {
    /// The topology's revision, and when the coordinator first saw this topology.
    revision: Option<(Revision, Duration)>,
    gainers: BTreeSet<NodeId>,
    /// For each live node that gains buckets and has acknowledged the topology: the machine's boot,
    /// and when the coordinator first saw this. If the machine boots again, this time begins again.
    given: BTreeMap<NodeId, (u64, Duration)>,
}

impl Acknowledgements {
    /// Notes which of the nodes that gain buckets have acknowledged the topology.
    pub(super) fn update(
        &mut self,
        revision: Revision,
        topology: &Topology,
        live: &[LiveNode],
        now: Duration,
    ) {
        if !self.are_of(revision) {
            *self = Self {
                revision: Some((revision, now)),
                gainers: reshape::gainers(topology),
                given: BTreeMap::new(),
            };
        }
        for gainer in &self.gainers {
            let acknowledgements = |live: &&LiveNode| {
                live.announcement.node == *gainer && live.acknowledged == Some(revision)
            };
            match live.iter().find(acknowledgements) {
                None => {
                    self.given.remove(gainer);
                }
                Some(live) => {
                    let boot = live.announcement.boot;
                    let given = self.given.entry(*gainer).or_insert((boot, now));
                    if given.0 != boot {
                        *given = (boot, now);
                    }
                }
            }
        }
    }

    /// Whether these acknowledgements are for the topology `revision`.
    pub(super) fn are_of(&self, revision: Revision) -> bool {
        self.revision.is_some_and(|(known, _)| known == revision)
    }

    /// Whether this node gains buckets and has acknowledged the topology.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.given.contains_key(&node)
    }

    /// Whether all nodes that gain buckets acknowledged the topology at least `dwell` ago.
    pub(super) fn are_complete(&self, now: Duration, dwell: Duration) -> bool {
        self.given.len() == self.gainers.len() && !self.is_dwelling(now, dwell)
    }

    /// Whether a node that gains buckets acknowledged the topology less than `dwell` ago.
    pub(super) fn is_dwelling(&self, now: Duration, dwell: Duration) -> bool {
        let mut given = self.given.values();
        given.any(|(_, since)| now.saturating_sub(*since) < dwell)
    }

    /// For how long the topology has been the current one.
    pub(super) fn waited(&self, now: Duration) -> Duration {
        let since = self.revision.map_or(now, |(_, since)| since);
        now.saturating_sub(since)
    }

    /// The nodes that gain buckets, but have not acknowledged the topology yet.
    pub(super) fn missing(&self) -> Vec<NodeId> {
        let missing = self.gainers.iter().filter(|node| !self.has(**node));
        missing.copied().collect()
    }
}
