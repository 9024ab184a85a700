//! The fates of the packets that reached a group on XDP, with the field names of the JSON.

use fanpcap_group::view::Ledger;
use serde::Serialize;

use crate::snapshot::{rounded, seconds};

/// The fate of packets that the steering program drops, in words.
pub const STEERED_NOWHERE: &str = "dropped by the steering program";

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
        }
    }

    /// The numbers of packets by fate, with each fate in words.
    pub fn fates(&self) -> [(u64, &'static str); 5] {
        [
            (self.in_rings_packets_total, "in rings"),
            (self.filtered_packets_total, "rejected by members' filters"),
            (self.ring_full_packets_total, "for full rings"),
            (self.steered_nowhere_packets_total, STEERED_NOWHERE),
            (self.no_member_packets_total, "without a member"),
        ]
    }
}
