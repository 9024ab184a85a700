//! The exported data: packets, how packets were selected, and how many were selected.

use std::time::Duration;

/// A captured packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// When the packet was captured, since the Unix epoch.
    pub time: Duration,
    /// The packet's length on the link in bytes, without the check sequence.
    pub wire_len: u32,
    /// The captured bytes of the packet, from the Ethernet header on.
    pub frame: &'a [u8],
    /// The revision of the topology by which this node captured the packet.
    pub revision: u64,
    /// The packet's bucket.
    pub bucket: u16,
    /// A hash of the packet's content. All nodes compute the same hash.
    pub digest: u32,
}

/// How the packets of a bucket are selected, according to a topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selector {
    /// The revision of the topology.
    pub revision: u64,
    /// The bucket, below 4096.
    pub bucket: u16,
    /// The algorithm that selects the packets.
    pub algorithm: Algorithm,
}

/// The algorithms of PSAMP that a cluster uses (IANA, psampSelectorAlgorithm). PSAMP has no
/// symmetric hash of flows and no hash of the IP id, so such selectors can't be described.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// Systematic count-based sampling (1): `interval` packets are selected, then `space` skipped.
    Systematic {
        /// How many packets are selected in a row.
        interval: u32,
        /// How many packets are skipped after the selected packets.
        space: u32,
    },
    /// The hash function BOB (6): a packet is selected if its hash modulo `modulus` is the bucket.
    Bob {
        /// The number of buckets.
        modulus: u32,
        /// How many bytes of the IP packet's payload the hash covers, from the first byte on.
        payload_len: u32,
    },
}

/// What the node counted for a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statistics {
    /// When the counters were read, since the Unix epoch.
    pub time: Duration,
    /// The revision of the topology.
    pub revision: u64,
    /// The bucket.
    pub bucket: u16,
    /// Packets of the bucket that the node saw.
    pub observed: u64,
    /// Packets of the bucket that the node captured.
    pub selected: u64,
}
