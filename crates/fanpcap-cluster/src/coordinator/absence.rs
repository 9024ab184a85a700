//! Decides whether absent nodes are dead, or whether the engine has lost many live nodes at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Timing;
use crate::identity::NodeId;

/// The recent absences of nodes.
#[derive(Debug, Default)]
pub(super) struct Absences {
    /// When each dead node was declared dead. Kept for a lease, or to the end of a mass absence.
    dead: BTreeMap<NodeId, Duration>,
    /// The mass absence, while so many nodes are absent that none of them counts as dead.
    mass: Option<MassAbsence>,
    /// Nodes that count as dead, because their mass absence lasted longer than [`Timing::outlast`].
    given_up: BTreeSet<NodeId>,
}

/// The absence of too many nodes at once.
#[derive(Debug, Default)]
struct MassAbsence {
    nodes: BTreeSet<NodeId>,
    /// When the mass absence began, or when its newest node became absent.
    since: Duration,
    /// Whether the coordinator hears at least half of all nodes. If so, the absent nodes are most
    /// likely dead or cut off. If not, the coordinator may be cut off.
    is_half_heard: bool,
    /// When the absent nodes became too few for a mass absence; `None` while they are enough.
    better: Option<Duration>,
}

impl Absences {
    /// Whether so many of `all` nodes are lost that none counts as dead, because the engine may be
    /// the cause. A mass absence ends a lease after the lost nodes became too few for it. If at
    /// most half of the nodes are lost, it also ends when no further node was lost for
    /// [`Timing::outlast`].
    pub(super) fn is_mass(
        &mut self,
        lost: &BTreeSet<NodeId>,
        all: usize,
        live: &BTreeSet<NodeId>,
        now: Duration,
        timing: &Timing,
    ) -> bool {
        let lease = timing.lease;
        let is_held = self.mass.is_some();
        self.dead.retain(|node, when| {
            !live.contains(node) && (is_held || now.saturating_sub(*when) < lease)
        });
        self.given_up.retain(|node| !live.contains(node));
        let known: BTreeSet<NodeId> = lost.difference(&self.given_up).copied().collect();
        let all = all - (lost.len() - known.len());
        let gone = self.dead.keys().filter(|node| !known.contains(node));
        let gone = gone.count();
        let (count, all) = (known.len() + gone, all + gone);
        if count >= 2 && count * 3 > all {
            self.hold(known, count * 2 <= all, now);
            if self.outlasts(now, timing.outlast) {
                self.give_up();
            }
        } else if let Some(mass) = &mut self.mass {
            let better = *mass.better.get_or_insert(now);
            if now.saturating_sub(better) >= lease || count == 0 {
                self.mass = None;
            }
        }
        self.mass.is_some()
    }

    fn hold(&mut self, lost: BTreeSet<NodeId>, is_half_heard: bool, now: Duration) {
        let mass = self.mass.get_or_insert_with(MassAbsence::default);
        mass.better = None;
        if !lost.is_subset(&mass.nodes) {
            mass.since = now;
        }
        mass.nodes = lost;
        mass.is_half_heard = is_half_heard;
    }

    fn outlasts(&self, now: Duration, outlast: Duration) -> bool {
        let outlasts = |mass: &MassAbsence| now.saturating_sub(mass.since) >= outlast;
        self.is_half_heard() && self.mass.as_ref().is_some_and(outlasts)
    }

    /// Whether a mass absence lasts, and the coordinator hears at least half of all nodes.
    pub(super) fn is_half_heard(&self) -> bool {
        self.mass.as_ref().is_some_and(|mass| mass.is_half_heard)
    }

    fn give_up(&mut self) {
        let nodes = self.mass.take().map(|mass| mass.nodes);
        self.given_up.extend(nodes.into_iter().flatten());
        self.given_up.extend(self.dead.keys());
        self.dead.clear();
    }

    /// Notes nodes that count as dead from now on.
    pub(super) fn note_dead(&mut self, nodes: impl Iterator<Item = NodeId>, now: Duration) {
        for node in nodes {
            if !self.given_up.contains(&node) {
                self.dead.entry(node).or_insert(now);
            }
        }
    }
}
