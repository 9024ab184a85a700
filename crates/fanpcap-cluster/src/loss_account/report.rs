//! A node's report: its counts and the time at which they were read.

use fanpcap_buckets::layout::BUCKETS;

use crate::identity::{NodeId, Revision};

/// A number of packets for each bucket.
pub type Counts = [u64; BUCKETS];

/// The newest beacon that a node saw in the mirrored stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Beacon {
    /// The beacon's number; 0 before the first.
    pub sequence: u64,
    /// When the node saw the beacon, in nanoseconds since 1970.
    pub seen: u64,
}

/// The fields of a report except the counts by bucket. All counts were 0 at the time `since`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The node.
    pub node: NodeId,
    /// A random number, made when the node's machine booted.
    pub boot: u64,
    /// When the counters were 0, in nanoseconds since 1970. A restarted agent keeps this time.
    pub since: u64,
    /// When the counters were read, in nanoseconds since 1970.
    pub stamp: u64,
    /// The topology that the node follows.
    pub revision: Revision,
    /// The node's own packets that were lost because its ring was full.
    pub ring: u64,
    /// The newest beacon.
    pub beacon: Beacon,
}

/// A node's counts at one time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The fields that are not counted by bucket.
    pub summary: Summary,
    /// Packets that reached the node's port.
    pub seen: Box<Counts>,
    /// The packets of the node's buckets that it captured. Packets lost at a full ring do not
    /// count.
    pub captured: Box<Counts>,
}

/// The greatest possible count: a bucket with ten million packets a second reaches it after three
/// years. The sum of all buckets fits into 63 bits.
pub(super) const MOST: u64 = 1 << 50;

impl Report {
    /// Whether the counts are consistent. They may be anything, because any process can send a
    /// report.
    pub(super) fn is_possible(&self) -> bool {
        let Summary { since, stamp, .. } = self.summary;
        let mut counts = self.seen.iter().zip(self.captured.iter());
        since <= stamp
            && self.summary.ring <= MOST
            && self.summary.beacon.sequence <= MOST
            && counts.all(|(seen, captured)| captured <= seen && *seen <= MOST)
    }

    /// Whether a count is less than in the report `before`.
    pub(super) fn goes_back(&self, before: &Self) -> bool {
        let fell = |new: &Counts, old: &Counts| new.iter().zip(old).any(|(new, old)| new < old);
        fell(&self.seen, &before.seen)
            || fell(&self.captured, &before.captured)
            || self.summary.ring < before.summary.ring
    }

    /// Packets of a bucket that the node saw and captured.
    pub(crate) fn counts(&self, bucket: usize) -> [u64; 2] {
        [&self.seen, &self.captured].map(|counts| counts[bucket])
    }
}
