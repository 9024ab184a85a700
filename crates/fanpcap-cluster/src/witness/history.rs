//! The past of the nodes' ports: a line for each port that was ever named.

use super::ledger::Ledger;
use super::verdict::Verdict;
use crate::identity::NodeId;
use crate::topology::NODES;

/// The past of a node's port since the ledger began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortHistory {
    /// Which node.
    pub node: NodeId,
    /// The worst verdict.
    pub worst: Verdict,
    /// When the port was named first, in nanoseconds since 1970.
    pub since: u64,
    /// When it lacked a packet last, or was blind, wrong or double last, in nanoseconds since 1970.
    pub last: u64,
    /// Packets that it did not deliver, as far as this is certain.
    pub packets: i64,
}

impl Ledger {
    /// Notes the verdicts of now. Of more than [`NODES`] ports, the one that has been well for the
    /// longest time is forgotten.
    pub(super) fn remember(&mut self) {
        let time = self.time;
        for life in self.lives.iter_mut().filter(|life| life.end.is_none()) {
            let (node, verdict) = (life.node, life.named(time));
            let known = self.history.iter().position(|port| port.node == node);
            if known.is_none() && verdict == Verdict::Sound {
                continue;
            }
            let mut port = known.map_or_else(
                || PortHistory {
                    node,
                    worst: verdict,
                    since: time,
                    last: time,
                    packets: 0,
                },
                |at| self.history.swap_remove(at),
            );
            let packets = life.port.tell();
            port.worst = port.worst.max(verdict);
            port.packets = port.packets.saturating_add(packets);
            if packets > 0 || life.is_named_at(time) {
                port.last = time;
            }
            self.history.push(port);
        }
        self.history.sort_by_key(|port| port.last);
        let many = self.history.len().saturating_sub(NODES);
        self.history.drain(..many);
    }
}
