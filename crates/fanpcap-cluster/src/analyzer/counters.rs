//! What an analyzer counts.

/// What an analyzer counts. A record that was received was delivered, or is in one of `doubles`,
/// `fenced`, `foreign` and `unknown`, or waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Batches that were taken.
    pub batches: u64,
    /// Records in them.
    pub received: u64,
    /// Records that were delivered.
    pub delivered: u64,
    /// Packets that another node had captured too.
    pub doubles: u64,
    /// Records of buckets that another node had taken over (fenced).
    pub fenced: u64,
    /// Records of buckets that the node did not have by its own topology.
    pub foreign: u64,
    /// Records by a topology that the cluster never had.
    pub unknown: u64,
    /// Records that came too late to be delivered in order. They were delivered all the same.
    pub late: u64,
    /// Late records whose doubles are not remembered any more. If such a record has a double, it
    /// was delivered twice.
    pub unchecked: u64,
    /// Records whose stamps are seconds ahead of the others'. They were delivered all the same.
    pub ahead: u64,
    /// Milliseconds whose records waited less than they should, for lack of memory.
    pub hurried: u64,
    /// Batches of another cluster, and batches so old that the analyzer can't know whether they are
    /// repeats.
    pub refused_batches: u64,
    /// Batches of more nodes or sessions than an analyzer follows.
    pub crowded_batches: u64,
    /// Records that nodes sent and that did not come.
    pub export_lost: u64,
}
