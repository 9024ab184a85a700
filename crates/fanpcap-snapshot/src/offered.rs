//! What has become of the packets that came to a group on XDP, with the names that JSON has.

use fanpcap_group::view::Ledger;
use serde::Serialize;

use crate::snapshot::{rounded, seconds};

/// A group's ledger, as a member has told it last.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Offered {
    /// When it was told.
    pub seconds_ago: f64,
    /// Packets that came to the group.
    pub offered_packets_total: u64,
    /// Packets put into members' rings.
    pub in_rings_packets_total: u64,
    /// Packets that members' filters rejected.
    pub filtered_packets_total: u64,
    /// Packets for which a ring had no room.
    pub ring_full_packets_total: u64,
    /// Packets that the steering program dropped.
    pub steered_nowhere_packets_total: u64,
    /// Packets for which there was no member.
    pub no_member_packets_total: u64,
}

impl Offered {
    /// The ledger at a time, nanoseconds of `CLOCK_MONOTONIC`.
    pub fn of(ledger: &Ledger, now_ns: u64) -> Self {
        Self {
            seconds_ago: rounded(seconds(ledger.at_ns, now_ns)),
            offered_packets_total: ledger.offered,
            in_rings_packets_total: ledger.produced,
            filtered_packets_total: ledger.unwanted,
            ring_full_packets_total: ledger.dropped,
            steered_nowhere_packets_total: ledger.nowhere,
            no_member_packets_total: ledger.no_member,
        }
    }

    /// Where the packets have gone: how many, and where in words.
    pub fn fates(&self) -> [(u64, &'static str); 5] {
        [
            (self.in_rings_packets_total, "in rings"),
            (self.filtered_packets_total, "rejected by members' filters"),
            (self.ring_full_packets_total, "for full rings"),
            (
                self.steered_nowhere_packets_total,
                "dropped by the steering program",
            ),
            (self.no_member_packets_total, "without a member"),
        ]
    }
}
