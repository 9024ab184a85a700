//! The ledger of a group: the counts of an engine that fills one ring or several for each slot.

/// What became of the packets that have come to a group since it began. If no packet goes to
/// several members, `offered` is the sum of all other fields except `at_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// When the counters were read, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Packets that came to the group.
    pub offered: u64,
    /// Packets that the steering program dropped.
    pub nowhere: u64,
    /// Packets for which there was no member.
    pub no_member: u64,
    /// Packets put into members' rings.
    pub produced: u64,
    /// Packets for which a member's ring had no room.
    pub dropped: u64,
    /// Packets that a member's filter rejected.
    pub unwanted: u64,
    /// Packets that the host sends, for members of a poller that do not want them.
    pub host_sent: u64,
    /// Packets for which the group's poller had no time.
    pub no_time: u64,
    /// Packets that the filter of the poller's policy has left out.
    pub not_allowed: u64,
}
