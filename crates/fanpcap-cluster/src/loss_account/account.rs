//! The result of the witnesses' counts.

use super::history::PortHistory;
use super::span::Span;
use super::verdict::Verdict;
use crate::identity::NodeId;

/// What became of the packets of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BucketAccount {
    /// Packets that reached the port of a node.
    pub offered: Span,
    /// Packets that nodes captured, those that two captured twice.
    pub captured: Span,
    /// Packets that a second node captured.
    pub doubles: Span,
    /// Of these, the packets that no analyzer has removed, though nodes send it their packets: it
    /// gave them out twice.
    pub kept: Span,
    /// Captured packets that an analyzer refused: another node had the bucket.
    pub refused: Span,
    /// Packets that no node captured for the cluster.
    pub lost: Span,
}

/// What a node has to do with that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeAccount {
    /// Which node.
    pub node: NodeId,
    /// What the others' counts of the last five minutes say of it.
    pub verdict: Verdict,
    /// Packets that its port did not give it, of all buckets, until all was at rest last.
    pub mirror: i64,
    /// Packets that were its own and found its ring full.
    pub ring: u64,
    /// Packets that reached its port.
    pub seen: u64,
    /// Packets that it captured.
    pub captured: u64,
}

/// What became of all packets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// The sum of the buckets.
    pub total: BucketAccount,
    /// Each bucket.
    pub buckets: Vec<BucketAccount>,
    /// The nodes that live.
    pub nodes: Vec<NodeAccount>,
    /// The past of each port that was ever named, dead nodes' too; the newest last.
    pub history: Vec<PortHistory>,
    /// Packets that found a node's ring full, dead nodes' too as far as they said so.
    pub ring: u64,
    /// Since when packets are accounted for, in nanoseconds since 1970.
    pub since: u64,
    /// When this was so, in nanoseconds since 1970.
    pub time: u64,
    /// How far nodes were apart at most when they saw the same of the last 20 beacons or so, in
    /// nanoseconds: their clocks' differences are in it. `None` without beacons that two have seen.
    pub apart: Option<u64>,
}
