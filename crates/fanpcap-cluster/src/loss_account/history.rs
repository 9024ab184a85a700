//! The history of the nodes' ports: a line for each port that ever had a verdict other than sound.

use super::counter_run::CounterRun;
use super::verdict::Verdict;
use crate::identity::NodeId;
use crate::topology::NODES;

/// The history of a node's port since the ledger began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortHistory {
    /// The node.
    pub node: NodeId,
    /// The worst verdict.
    pub worst: Verdict,
    /// The time of the port's first verdict other than sound (nanoseconds since 1970).
    pub since: u64,
    /// When the port last lacked a packet, or had a verdict other than sound (nanoseconds since
    /// 1970).
    pub last: u64,
    /// Packets that the port certainly did not deliver.
    pub packets: i64,
}

/// Notes the present verdict on the port of `run`'s node. The newest line is at the end.
pub(super) fn note(history: &mut Vec<PortHistory>, run: &mut CounterRun, time: u64) {
    let (node, verdict) = (run.node, run.named(time));
    let known = history.iter().position(|port| port.node == node);
    if known.is_none() && verdict == Verdict::Sound {
        return;
    }
    let new = PortHistory {
        node,
        worst: verdict,
        since: time,
        last: time,
        packets: 0,
    };
    let mut port = known.map_or(new, |at| history.remove(at));
    let packets = run.port.take_new();
    port.worst = port.worst.max(verdict);
    port.packets = port.packets.saturating_add(packets);
    if packets > 0 || run.is_named_at(time) {
        port.last = time;
    }
    // Forgets the port whose verdict has been sound for the longest time.
    if history.len() == NODES {
        history.remove(0);
    }
    let at = history.partition_point(|other| other.last <= port.last);
    history.insert(at, port);
}
