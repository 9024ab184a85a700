//! The loss account: what became of the packets, according to the nodes' counters.

use super::history::PortHistory;
use super::span::Span;
use super::verdict::Verdict;
use crate::identity::NodeId;

/// What became of the packets of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BucketAccount {
    /// Packets that reached the port of a node.
    pub offered: Span,
    /// Packets that nodes captured. A packet that two nodes captured counts twice.
    pub captured: Span,
    /// Packets that a second node captured.
    pub doubles: Span,
    /// Of these, the packets that the analyzer did not remove although nodes send it their packets:
    /// it delivered them twice.
    pub kept: Span,
    /// Captured packets that an analyzer refused: another node had the bucket.
    pub refused: Span,
    /// Packets that no node captured for the cluster.
    pub lost: Span,
}

/// A node's part in the account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeAccount {
    /// Which node.
    pub node: NodeId,
    /// The verdict on its port, by the others' counts of the last five minutes.
    pub verdict: Verdict,
    /// Packets that did not reach its port, until traffic last stopped in all buckets.
    pub mirror: i64,
    /// Its own packets that found its ring full.
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
    /// The live nodes.
    pub nodes: Vec<NodeAccount>,
    /// The history of each port that was ever named, also of dead nodes; the newest last.
    pub history: Vec<PortHistory>,
    /// Packets that found a node's ring full, also of dead nodes as far as they reported them.
    pub ring: u64,
    /// Since when packets are accounted for, in nanoseconds since 1970.
    pub since: u64,
    /// The time of the account, in nanoseconds since 1970.
    pub time: u64,
    /// The largest time between two nodes' sightings of the same beacon, of the last 20 or so, in
    /// nanoseconds. It includes the difference of their clocks. `None` without beacons that two
    /// have seen.
    pub apart: Option<u64>,
}
