//! What is exported: packets, how they were selected, and how many.

use std::time::Duration;

/// A captured packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// When it was captured, since the Unix epoch.
    pub time: Duration,
    /// Its length on the link in bytes, without the check sequence.
    pub wire_len: u32,
    /// Its captured bytes, from the Ethernet header on.
    pub frame: &'a [u8],
    /// The topology that gave it to this node.
    pub revision: u64,
    /// The bucket that it is in.
    pub bucket: u16,
    /// A hash over its content, the same at all nodes.
    pub digest: u32,
}

/// How the packets of a bucket are selected, under a topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selector {
    /// The topology.
    pub revision: u64,
    /// The bucket, which this node has.
    pub bucket: u16,
    /// How.
    pub algorithm: Algorithm,
}

/// PSAMP's algorithms that a cluster uses (IANA, psampSelectorAlgorithm). A symmetric hash of flows
/// and a hash of the IP id are not among PSAMP's: such selectors can't be described.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// Systematic count-based sampling (1): `interval` packets are selected, then `space` are not.
    Systematic {
        /// How many packets are selected in a row.
        interval: u32,
        /// How many are not, after them.
        space: u32,
    },
    /// The hash function BOB (6): packets are selected whose hash, modulo `modulus`, is the bucket.
    Bob {
        /// How many buckets there are.
        modulus: u32,
        /// How many bytes of the IP packet's payload go into the hash, from its first.
        payload_len: u32,
    },
}

/// What the node counted for a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statistics {
    /// When the counters were read, since the Unix epoch.
    pub time: Duration,
    /// The topology.
    pub revision: u64,
    /// The bucket.
    pub bucket: u16,
    /// Packets of the bucket that the node saw.
    pub observed: u64,
    /// Packets of the bucket that the node captured.
    pub selected: u64,
}
