//! The fates of the packets that reached a group on XDP or at a poller, with the field names of
//! the JSON.

use fanpcap_group::view::Ledger;
use serde::Serialize;

use crate::snapshot::{rounded, seconds};

/// The fate of packets that the steering program drops, in words.
pub const STEERED_NOWHERE: &str = "dropped by the steering program";

/// The fate of packets that a member of a poller does not want, in words.
const HOST_SENT: &str = "sent by the host and not wanted";

/// The fate of packets that a poller leaves out because its groups take too long, in words.
pub const NO_TIME: &str = "for which the poller had no time";

/// The fate of packets that the filter of a poller's policy leaves out, in words.
pub const NOT_ALLOWED: &str = "left out by the filter of the poller's policy";

/// A group's ledger, as a member last published it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Offered {
    /// Seconds since the ledger was published.
    pub seconds_ago: f64,
    /// Packets that reached the group.
    pub offered_packets_total: u64,
    /// Packets put into members' rings.
    pub in_rings_packets_total: u64,
    /// Packets that members' filters rejected.
    pub filtered_packets_total: u64,
    /// Packets dropped because a ring was full.
    pub ring_full_packets_total: u64,
    /// Packets that the steering program dropped.
    pub steered_nowhere_packets_total: u64,
    /// Packets for which the group had no member.
    pub no_member_packets_total: u64,
    /// Packets that the host sends, for members of a poller that do not want them.
    pub host_sent_packets_total: u64,
    /// Packets for which the group's poller had no time.
    pub no_time_packets_total: u64,
    /// Packets that the filter of the poller's policy has left out.
    pub not_allowed_packets_total: u64,
}

impl Offered {
    /// The ledger at `now_ns`, in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn of(ledger: &Ledger, now_ns: u64) -> Self {
        Self {
            seconds_ago: rounded(seconds(ledger.at_ns, now_ns)),
            offered_packets_total: ledger.offered,
            in_rings_packets_total: ledger.produced,
            filtered_packets_total: ledger.unwanted,
            ring_full_packets_total: ledger.dropped,
            steered_nowhere_packets_total: ledger.nowhere,
            no_member_packets_total: ledger.no_member,
            host_sent_packets_total: ledger.host_sent,
            no_time_packets_total: ledger.no_time,
            not_allowed_packets_total: ledger.not_allowed,
        }
    }

    /// The numbers of packets by fate, with each fate in words.
    pub fn fates(&self) -> [(u64, &'static str); 8] {
        [
            (self.in_rings_packets_total, "in rings"),
            (self.filtered_packets_total, "rejected by members' filters"),
            (self.ring_full_packets_total, "for full rings"),
            (self.steered_nowhere_packets_total, STEERED_NOWHERE),
            (self.no_member_packets_total, "without a member"),
            (self.host_sent_packets_total, HOST_SENT),
            (self.no_time_packets_total, NO_TIME),
            (self.not_allowed_packets_total, NOT_ALLOWED),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fates_are_all_fields() {
        let ledger = Ledger {
            at_ns: 1,
            offered: 255,
            nowhere: 1,
            no_member: 2,
            produced: 4,
            dropped: 8,
            unwanted: 16,
            host_sent: 32,
            no_time: 64,
            not_allowed: 128,
        };
        let offered = Offered::of(&ledger, 1);
        let sum: u64 = offered.fates().iter().map(|(packets, _)| packets).sum();
        assert_eq!(sum, offered.offered_packets_total);
    }
}
