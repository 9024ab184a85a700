//! What the BPF program and the process agree on: names and sizes of maps, and where each number
//! is. All numbers are in the machine's byte order.

use fanpcap_bpf::{MapKind, MapSpec};
use fanpcap_buckets::layout::BUCKETS;

use crate::in_line::BEACONS;

/// Name of the array with the control word, the announced numbers and both tables: one row.
pub const CONTROL_MAP: &str = "control";
/// Name of the array with all counters: one row.
pub const COUNTS_MAP: &str = "counts";
/// Name of the array of ring buffers, by lane. A BPF program that passes packets on has none.
pub const RINGS_MAP: &str = "rings";
/// Name of the array with the BPF program that gets this node's packets, at index 0. Only a BPF
/// program that passes packets on has it.
pub const NEXT_MAP: &str = "next";

/// Offsets in [`CONTROL_MAP`].
pub mod control {
    use super::{BEACONS, BUCKETS};

    /// 64 bits: [`crate::Control`].
    pub const WORD: usize = 0;
    /// 64 bits: the control word from the next topology update in the stream on; 0: the same.
    pub const NEXT: usize = 8;
    /// 64 bits: the number of the next topology update; 0: none was announced.
    pub const UPDATE: usize = 16;
    /// 64 bits each: the numbers of beacons, by their sequence modulo [`BEACONS`].
    pub const NUMBERS: usize = 64;
    /// 64 bits: packets since the last topology update in the stream.
    pub const TURNS: usize = 128;
    /// 64 bits each: of the last beacon its sequence, its time in nanoseconds of TAI, and when it
    /// came, in nanoseconds of `CLOCK_MONOTONIC`. The sequence is written last.
    pub const LAST: usize = 256;
    /// Both tables: a byte for each bucket, [`crate::Claim`].
    pub const TABLES: usize = 4096;
    /// Bytes of the row.
    pub const LEN: usize = TABLES + 2 * BUCKETS;

    const _: () = assert!(NUMBERS + 8 * BEACONS <= TURNS && LAST + 24 <= TABLES);
}

/// Offsets in [`COUNTS_MAP`], of lane 0.
pub mod counts {
    use super::{BUCKETS, Lanes};

    /// For each bucket 64 bits with the packets seen, and 64 bits with those captured.
    pub const BUCKET: usize = 16;
    /// Bytes of the buckets of a lane.
    pub const LANE: usize = BUCKETS * BUCKET;
    /// Bytes of the causes of a lane, which follow the buckets of all lanes.
    pub const CAUSES: usize = 128;

    /// 64 bits each, in the causes: see [`crate::native::Causes`].
    pub const BEACONS: usize = 0;
    /// Topology updates.
    pub const UPDATES: usize = 8;
    /// Frames with a wrong number.
    pub const FORGED: usize = 16;
    /// Packets without what their key is made of.
    pub const OTHERS: usize = 24;
    /// Packets that found no room in a ring.
    pub const LOST: usize = 32;
    /// This node's packets of a bucket that another node has too.
    pub const SHARED: usize = 40;

    /// Where the causes of lane 0 are.
    pub const fn causes(lanes: Lanes) -> usize {
        lanes.count() * LANE
    }

    /// Bytes of the row.
    pub const fn len(lanes: Lanes) -> usize {
        lanes.count() * (LANE + CAUSES)
    }
}

/// Lanes of a device: counters, and a ring buffer, for each receive queue, up to 16. A queue beyond
/// the 16th shares the lane of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes(u8);

impl Lanes {
    /// The lanes of a device with so many receive queues: a power of two.
    pub fn for_queues(queues: u32) -> Self {
        let count = queues.clamp(1, 16).next_power_of_two();
        Self(u8::try_from(count).unwrap_or(16))
    }

    /// How many.
    pub const fn count(self) -> usize {
        self.0 as usize
    }
}

pub(crate) fn control_map() -> MapSpec {
    MapSpec::given_rows(CONTROL_MAP, MapKind::Array, length(control::LEN), 1)
}

pub(crate) fn counts_map(lanes: Lanes) -> MapSpec {
    MapSpec::given_rows(COUNTS_MAP, MapKind::Array, length(counts::len(lanes)), 1)
}

pub(crate) fn rings_map(lanes: Lanes) -> MapSpec {
    MapSpec::given_rows(RINGS_MAP, MapKind::RingArray, 4, length(lanes.count()))
}

pub(crate) fn next_map() -> MapSpec {
    MapSpec::given_rows(NEXT_MAP, MapKind::ProgArray, 4, 1)
}

/// A length that is a constant, or small.
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_a_power_of_two() {
        for (queues, count) in [(0, 1), (1, 1), (2, 2), (3, 4), (16, 16), (63, 16)] {
            assert_eq!(Lanes::for_queues(queues).count(), count);
        }
    }
}
