//! What an analyzer counts.

/// What an analyzer counts. Each received record waits, was delivered, or is counted in one of
/// `doubles`, `fenced`, `foreign` and `unknown`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Batches that the analyzer accepted.
    pub batches: u64,
    /// Records in the accepted batches.
    pub received: u64,
    /// Records that were delivered.
    pub delivered: u64,
    /// Packets that were not delivered, because another node had captured them too.
    pub doubles: u64,
    /// Records of buckets that another node had taken over (fenced).
    pub fenced: u64,
    /// Records of buckets that the topology named in their batch did not give to the node.
    pub foreign: u64,
    /// Records with the revision of a topology that the cluster never had.
    pub unknown: u64,
    /// Records that came too late to be delivered in order. They were delivered out of order.
    pub late: u64,
    /// Late records that could not be checked for doubles any more. They were delivered.
    pub unchecked: u64,
    /// Records whose stamps are seconds ahead of the other nodes' stamps. They were delivered.
    pub ahead: u64,
    /// Milliseconds whose records waited for less time than they should, because memory was short.
    pub hurried: u64,
    /// Batches of another cluster, and batches too old to be recognized as repeats.
    pub refused_batches: u64,
    /// Batches that were refused because the analyzer had the maximum number of nodes or sessions.
    pub crowded_batches: u64,
    /// Records that nodes sent and the analyzer did not receive.
    pub export_lost: u64,
}
