//! What the BPF program and the process agree on: names and sizes of maps, and where each number
//! is. All numbers are in the machine's byte order.

use fanpcap_bpf::{MapKind, MapSpec};
use fanpcap_buckets::layout::BUCKETS;

use crate::in_line;

/// Name of the array with the control word, the announced numbers and both tables: one row.
pub const CONTROL_MAP: &str = "control";
/// Name of the array with all counters: one row.
pub const COUNTS_MAP: &str = "counts";
/// Name of the array of ring buffers, by lane: of a BPF program that ships.
pub const RINGS_MAP: &str = "rings";
/// Name of the array with the BPF program that gets this node's packets, at index 0: of a BPF
/// program that passes them to it.
pub const NEXT_MAP: &str = "next";

/// Offsets in [`CONTROL_MAP`].
pub mod control {
    use super::{BUCKETS, in_line};

    /// 64 bits: [`crate::Control`].
    pub const WORD: usize = 0;
    /// 64 bits: the control word from the next topology update in the stream on; 0: the same.
    pub const NEXT: usize = 8;
    /// 64 bits: packets since the last topology update in the stream.
    pub const TURNS: usize = 128;
    /// 64 bits each: of the last beacon its sequence, its time in nanoseconds of TAI, and when it
    /// came, in nanoseconds of `CLOCK_MONOTONIC`. The sequence is written last.
    pub const LAST: usize = 256;
    /// 64 bits: the number of the last beacon, on a node with several devices. The others of its
    /// devices may bring copies of the beacon.
    pub const LAST_NUMBER: usize = LAST + 24;
    /// 64 bits each, used only by processes, about a change of a claim that may be unfinished: 1 if
    /// there is such a change, the place in the tables, the new claim, and the bucket's values in
    /// [`SUMS`] and [`SHARED`] after the change.
    pub const CHANGE: usize = 512;
    /// 64 bits each: the numbers of beacons, by their sequence modulo [`in_line::NUMBERS`]; 0 where
    /// none was announced.
    pub const BEACONS: usize = 1024;
    /// The same of topology updates.
    pub const UPDATES: usize = 2048;
    /// Both tables: a byte for each bucket, [`crate::Claim`].
    pub const TABLES: usize = 4096;
    /// 64 bits for each bucket, used only by processes: its packets that this node has captured,
    /// minus those counted under tables with a claim to the bucket, modulo 2^64.
    pub const SUMS: usize = TABLES + 2 * BUCKETS;
    /// 64 bits for each bucket, used only by processes: the same of the packets that this node
    /// selected in unions, under claims that it shared.
    pub const SHARED: usize = SUMS + 8 * BUCKETS;
    /// Bytes of the row.
    pub const LEN: usize = SHARED + 8 * BUCKETS;

    const _: () = {
        let len = 8 * in_line::NUMBERS;
        assert!(BEACONS + len <= UPDATES && UPDATES + len <= TABLES);
    };
}

/// Offsets in [`COUNTS_MAP`], of lane 0.
///
/// A lane with a queue of its own counts a packet in 16 bits, so that the counters of a table leave
/// the CPU's first cache to others: 8 KiB and not 32. When the lower [`HALF`] of these bits begin
/// anew, the bucket has one more half turn, of 64 bits. It is counted after the 16 bits are stored;
/// until then the highest of these is not the lowest of the half turns.
pub mod counts {
    use super::{BUCKETS, Lanes};

    /// Bytes of a table's counters of 16 bits: a bucket's packets while the table counted.
    pub const SHORT_TABLE: usize = BUCKETS * 2;
    /// Bytes of a lane: the counters of 16 bits of both tables. Lanes with a queue of their own
    /// have them, from the row's begin on.
    pub const SHORT_LANE: usize = 2 * SHORT_TABLE;
    /// Bits of a half turn.
    pub const HALF: u32 = 15;
    /// Bytes of a table's counters of 64 bits: the half turns of each bucket, in the lane that all
    /// other queues share its packets.
    pub const TABLE: usize = BUCKETS * 8;
    /// Bytes of a lane: the counters of 64 bits of both tables.
    pub const LANE: usize = 2 * TABLE;
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
    /// This node's packets that did not pass the cluster's filter.
    pub const FILTERED: usize = 40;

    /// Where the counters of 64 bits of lane 0 are.
    pub const fn long(lanes: Lanes) -> usize {
        lanes.own() * SHORT_LANE
    }

    /// Where the causes of lane 0 are.
    pub const fn causes(lanes: Lanes) -> usize {
        long(lanes) + lanes.counters() * LANE
    }

    /// Where 64 bits for each bucket are: its packets that found no room in a ring, over all lanes.
    pub const fn lost(lanes: Lanes) -> usize {
        causes(lanes) + lanes.counters() * CAUSES
    }

    /// Bytes of the row.
    pub const fn len(lanes: Lanes) -> usize {
        lost(lanes) + TABLE
    }
}

/// Lanes of a node's devices, as the BPF program of one of them uses them: counters and a ring
/// buffer for each receive queue, which the driver serves on one CPU at a time. So the counters of
/// a lane need no atomic additions. Queues without a lane of their own share one more lane of
/// counters, which has them, and the first ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    own: u8,
    first: u8,
    queues: u8,
    devices: u8,
}

/// Most lanes with a queue of their own.
const QUEUES_MAX: u8 = 64;

impl Lanes {
    /// No queue has a lane of its own: for a hook where several CPUs may serve a queue (the
    /// kernel's generic XDP).
    pub const SHARED: Self = Self {
        own: 0,
        first: 0,
        queues: 0,
        devices: 1,
    };

    /// The lanes of a device with so many receive queues.
    pub fn for_queues(queues: u32) -> Self {
        let queues = u8::try_from(queues).unwrap_or(u8::MAX);
        let queues = queues.clamp(1, QUEUES_MAX);
        Self {
            own: queues,
            first: 0,
            queues,
            devices: 1,
        }
    }

    /// The lanes for each of several devices with so many receive queues, all in the same maps: a
    /// queue of one device is not a queue of another. With a 0, no queue has a lane of its own.
    /// Lanes that one device does not need are for the others.
    pub fn of_devices(queues: &[u32]) -> Vec<Self> {
        let devices = u8::try_from(queues.len()).unwrap_or(u8::MAX);
        if queues.contains(&0) {
            let shared = Self {
                devices,
                ..Self::SHARED
            };
            return vec![shared; queues.len()];
        }
        let wanted = queues.iter().map(|it| Self::for_queues(*it).queues);
        let wanted: Vec<u8> = wanted.collect();
        let is_enough = |most: &u8| {
            let lanes = wanted.iter().map(|it| usize::from(*it.min(most)));
            lanes.sum::<usize>() <= usize::from(QUEUES_MAX)
        };
        let most = (1..=QUEUES_MAX).rev().find(is_enough).unwrap_or(1);
        let mut all = Vec::new();
        let mut own = 0_u8;
        for queues in wanted {
            let queues = queues.min(most).min(QUEUES_MAX - own);
            all.push((own, queues));
            own += queues;
        }
        let lanes = all.into_iter().map(|(first, queues)| Self {
            own,
            first,
            queues,
            devices,
        });
        lanes.collect()
    }

    /// The lanes of which so many are a queue's own: see [`Lanes::own`].
    pub fn with_own(own: u32) -> Self {
        if own == 0 {
            Self::SHARED
        } else {
            Self::for_queues(own)
        }
    }

    /// Queues that have a lane of their own, of all devices.
    pub const fn own(self) -> usize {
        self.own as usize
    }

    /// The lane of the device's queue 0.
    pub(crate) const fn first(self) -> usize {
        self.first as usize
    }

    /// The device's queues that have a lane of their own, from queue 0 on.
    pub const fn queues(self) -> usize {
        self.queues as usize
    }

    /// Whether the node has other devices with the same maps.
    pub(crate) const fn is_one_of_several(self) -> bool {
        self.devices > 1
    }

    /// Lanes of counters.
    pub const fn counters(self) -> usize {
        self.own() + 1
    }

    /// Ring buffers.
    pub const fn rings(self) -> usize {
        if self.own == 0 { 1 } else { self.own() }
    }
}

pub(crate) fn control_map() -> MapSpec {
    MapSpec::given_rows(CONTROL_MAP, MapKind::Array, length(control::LEN), 1)
}

pub(crate) fn counts_map(lanes: Lanes) -> MapSpec {
    MapSpec::given_rows(COUNTS_MAP, MapKind::Array, length(counts::len(lanes)), 1)
}

pub(crate) fn rings_map(lanes: Lanes) -> MapSpec {
    MapSpec::given_rows(RINGS_MAP, MapKind::RingArray, 4, length(lanes.rings()))
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
    fn queues_have_lanes_of_their_own_up_to_a_limit() {
        for (queues, own) in [(0, 1), (1, 1), (3, 3), (64, 64), (65, 64), (1 << 20, 64)] {
            let lanes = Lanes::for_queues(queues);
            let found = [lanes.own(), lanes.counters(), lanes.rings()];
            assert_eq!(found, [own, own + 1, own]);
        }
        assert_eq!((Lanes::SHARED.counters(), Lanes::SHARED.rings()), (1, 1));
    }

    #[test]
    fn queues_of_several_devices_have_different_lanes() {
        let of = |queues: &[u32]| -> Vec<_> {
            let lanes = Lanes::of_devices(queues).into_iter();
            lanes
                .map(|it| (it.own(), it.first(), it.queues()))
                .collect()
        };
        assert_eq!(of(&[7]), [(7, 0, 7)]);
        assert_eq!(of(&[2, 1, 3]), [(6, 0, 2), (6, 2, 1), (6, 3, 3)]);
        assert_eq!(of(&[100, 4]), [(64, 0, 60), (64, 60, 4)]);
        assert_eq!(of(&[4, 60]), [(64, 0, 4), (64, 4, 60)]);
        assert_eq!(of(&[63, 63]), [(64, 0, 32), (64, 32, 32)]);
        assert_eq!(
            of(&[1, 40, 40]),
            [(63, 0, 1), (63, 1, 31), (63, 32, 31)],
            "each of the larger ones has as many"
        );
        assert_eq!(of(&[4, 0]), [(0, 0, 0); 2]);
        for several in [&[2, 2][..], &[4, 0]] {
            let mut lanes = Lanes::of_devices(several).into_iter();
            assert!(lanes.all(Lanes::is_one_of_several));
        }
        assert!(!Lanes::of_devices(&[0])[0].is_one_of_several());
    }
}
