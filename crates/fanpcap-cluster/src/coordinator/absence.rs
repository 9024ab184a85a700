//! Tells nodes that died from nodes that the engine lost all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::identity::NodeId;

/// The absences of the last while.
#[derive(Debug, Default)]
pub(super) struct Absences {
    /// Nodes that were held for dead within the last lease, and when. While too many are absent,
    /// the list is kept.
    buried: BTreeMap<NodeId, Duration>,
    /// Too many are absent; since when that is better, if it is.
    mass: Option<Option<Duration>>,
}

impl Absences {
    /// Whether so many of `all` nodes are lost that none of them is to be held for dead. Ends once
    /// fewer are lost, for as long as a lease.
    pub(super) fn is_mass(
        &mut self,
        lost: &BTreeSet<NodeId>,
        all: usize,
        live: &BTreeSet<NodeId>,
        now: Duration,
        lease: Duration,
    ) -> bool {
        let is_held = self.mass.is_some();
        self.buried.retain(|node, when| {
            !live.contains(node) && (is_held || now.saturating_sub(*when) < lease)
        });
        let gone = self
            .buried
            .keys()
            .filter(|node| !lost.contains(node))
            .count();
        let (lost, all) = (lost.len() + gone, all + gone);
        if lost >= 2 && lost * 3 > all {
            self.mass = Some(None);
        } else if let Some(better) = &mut self.mass {
            let better = *better.get_or_insert(now);
            if now.saturating_sub(better) >= lease || lost == 0 {
                self.mass = None;
            }
        }
        self.mass.is_some()
    }

    /// Notes nodes that are held for dead from now on.
    pub(super) fn bury(&mut self, nodes: impl Iterator<Item = NodeId>, now: Duration) {
        for node in nodes {
            self.buried.entry(node).or_insert(now);
        }
    }
}
