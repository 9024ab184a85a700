//! Since when each node is alive, and how often it has disappeared.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Timing;
use crate::coordination::LiveNode;
use crate::identity::NodeId;
use crate::topology::NODES;

/// How long a newcomer must live before it gets buckets, so that nodes can start together.
const ARRIVAL: Duration = Duration::from_secs(1);

/// The longest hold-down of a node that disappears often, unless [`Timing::hold_down`] is longer.
const HOLD_DOWN_MOST: Duration = Duration::from_secs(300);

/// The maximum number of nodes that are remembered.
const MOST: usize = 4 * NODES;

/// When a node has lived for this many times its hold-down, its earlier departures no longer count.
const FORGIVEN: u32 = 4;

/// The nodes that were seen.
#[derive(Debug, Default)]
pub(super) struct SeenNodes {
    nodes: BTreeMap<NodeId, SeenNode>,
}

#[derive(Debug)]
struct SeenNode {
    /// The boot number that the node announced last.
    boot: u64,
    /// When the node last came or went.
    since: Duration,
    runs: bool,
    /// How often the node has disappeared recently.
    departures: u32,
}

impl SeenNodes {
    /// Notes which nodes are alive now.
    pub(super) fn update(&mut self, live: &[LiveNode], now: Duration, timing: &Timing) {
        for (node, presence) in &mut self.nodes {
            let is_live = live.iter().any(|live| live.announcement.node == *node);
            if presence.runs && !is_live {
                presence.turn(false, now);
            }
            let hold = presence.hold(timing) * FORGIVEN;
            if presence.runs && now.saturating_sub(presence.since) >= hold {
                presence.departures = 0;
            }
        }
        for live in live {
            self.see(live, now);
        }
        let forgotten = HOLD_DOWN_MOST * FORGIVEN;
        self.nodes
            .retain(|_, node| node.runs || now.saturating_sub(node.since) < forgotten);
        while self.nodes.len() > MOST {
            let away = self.nodes.iter().filter(|(_, node)| !node.runs);
            let oldest = away.min_by_key(|(_, node)| node.since);
            let Some(oldest) = oldest.map(|(node, _)| *node) else {
                break;
            };
            self.nodes.remove(&oldest);
        }
    }

    fn see(&mut self, live: &LiveNode, now: Duration) {
        let boot = live.announcement.boot;
        let presence = self
            .nodes
            .entry(live.announcement.node)
            .or_insert(SeenNode {
                boot,
                since: now,
                runs: true,
                departures: 0,
            });
        if presence.boot != boot && presence.runs {
            presence.turn(false, now);
        }
        if !presence.runs {
            presence.turn(true, now);
        }
        presence.boot = boot;
    }

    /// Whether the node's hold-down is over.
    pub(super) fn is_admitted(&self, live: &LiveNode, now: Duration, timing: &Timing) -> bool {
        let presence = self.nodes.get(&live.announcement.node);
        presence.is_some_and(|presence| {
            presence.runs && now.saturating_sub(presence.since) >= presence.hold(timing)
        })
    }

    /// Whether the node was gone at some time since this coordinator began to lead.
    pub(super) fn was_gone(&self, node: NodeId) -> bool {
        let presence = self.nodes.get(&node);
        presence.is_some_and(|presence| presence.departures > 0)
    }

    /// When the node left; `None` if it is alive, or was never seen.
    pub(super) fn left(&self, node: NodeId) -> Option<Duration> {
        let presence = self.nodes.get(&node).filter(|presence| !presence.runs)?;
        Some(presence.since)
    }
}

impl SeenNode {
    fn turn(&mut self, runs: bool, now: Duration) {
        self.runs = runs;
        self.since = now;
        self.departures = self.departures.saturating_add(u32::from(!runs));
    }

    /// How long the node waits before it gets buckets.
    fn hold(&self, timing: &Timing) -> Duration {
        let Some(doubled) = self.departures.checked_sub(1) else {
            return ARRIVAL;
        };
        let doubled = doubled.min(20);
        let hold = timing.hold_down.saturating_mul(1 << doubled);
        hold.min(HOLD_DOWN_MOST.max(timing.hold_down))
    }
}
