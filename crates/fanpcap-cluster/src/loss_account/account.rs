//! The loss account: what became of the packets, according to the nodes' counters.

use super::history::PortHistory;
use super::span::Span;
use super::verdict::Verdict;
use crate::identity::NodeId;

/// What became of the packets of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BucketAccount {
    /// Packets that reached at least one node's port.
    pub offered: Span,
    /// Packets that nodes captured. A packet that two nodes captured counts twice.
    pub captured: Span,
    /// Packets that a second node captured.
    pub doubles: Span,
    /// Doubles that the analyzer did not remove, so that it delivered both copies.
    pub kept: Span,
    /// Captured packets that an analyzer refused, because another node owned their bucket.
    pub refused: Span,
    /// Packets that no node captured for the cluster.
    pub lost: Span,
}

/// A node's part in the account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeAccount {
    /// The node.
    pub node: NodeId,
    /// The verdict on the node's port, by the other nodes' counts of the last five minutes.
    pub verdict: Verdict,
    /// Packets lost before the node's port. The losses of a bucket are added to this number only
    /// when the bucket's traffic stops, because they are not certain before.
    pub mirror: i64,
    /// Packets that the node selected and that were lost because its ring buffer was full.
    pub ring: u64,
    /// Packets that reached the node's port.
    pub seen: u64,
    /// Packets that the node captured.
    pub captured: u64,
}

/// What became of all packets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// The sum of the buckets.
    pub total: BucketAccount,
    /// Each bucket.
    pub buckets: Vec<BucketAccount>,
    /// The live nodes.
    pub nodes: Vec<NodeAccount>,
    /// The history of each port that ever had a bad verdict, also of dead nodes; the newest last.
    pub history: Vec<PortHistory>,
    /// Packets lost in nodes' full ring buffers; for a dead node, the number in its last report.
    pub ring: u64,
    /// When the account begins, in nanoseconds since 1970.
    pub since: u64,
    /// The time of the account, in nanoseconds since 1970.
    pub time: u64,
    /// The most nanoseconds between the times at which two nodes saw the same beacon, for about the
    /// last 20 beacons. This time includes the difference of the nodes' clocks. `None` if no two
    /// nodes saw the same beacon.
    pub apart: Option<u64>,
}
