//! The memory that the BPF program and the agent share: the names and sizes of the maps, and the
//! position of each number. All numbers are in the machine's byte order.

use fanpcap_bpf::{MapKind, MapSpec};
use fanpcap_buckets::layout::BUCKETS;

use crate::in_line;

/// Name of the array with the control word, the announced numbers and both tables. It has one row.
pub const CONTROL_MAP: &str = "control";
/// Name of the array with all counters. It has one row.
pub const COUNTS_MAP: &str = "counts";
/// Name of the array with the node's pool. The array has only index 0. Only a BPF program that
/// ships packets has this map.
pub const POOL_MAP: &str = "pool";
/// Name of the program array with the BPF program that gets this node's packets. The array has only
/// index 0. Only a BPF program that passes packets to another BPF program has this map.
pub const NEXT_MAP: &str = "next";

/// Offsets in [`CONTROL_MAP`].
pub mod control {
    use super::{BUCKETS, in_line};

    /// 64 bits: [`crate::Control`].
    pub const WORD: usize = 0;
    /// 64 bits: the control word that the next topology update copies to [`WORD`]; 0 for none.
    pub const NEXT: usize = 8;
    /// 64 bits: how many packets came since the last topology update.
    pub const TURNS: usize = 128;
    /// The last beacon, in fields of 64 bits: its sequence, the time in its frame (nanoseconds of
    /// TAI), and when it came (nanoseconds of `CLOCK_MONOTONIC`). The sequence is written last.
    pub const LAST: usize = 256;
    /// 64 bits: the announced number of the last beacon. Only a node with several devices needs
    /// this number: its other devices may receive copies of the beacon, which are dropped.
    pub const LAST_NUMBER: usize = LAST + 24;
    /// A change of one bucket's claim. An agent stores the change before making it, so that the
    /// next agent can complete it. Only agents use these fields of 64 bits: 1 while the change is
    /// incomplete, the claim's place in the tables, the new claim, and the bucket's new values in
    /// [`SUMS`] and [`SHARED`].
    pub const CHANGE: usize = 512;
    /// The announced numbers of beacons, 64 bits each. The number for the beacon with sequence `s`
    /// has the index `s` modulo [`in_line::NUMBERS`], and is 0 if no number was announced.
    pub const BEACONS: usize = 1024;
    /// The numbers of topology updates, stored like those of beacons.
    pub const UPDATES: usize = 2048;
    /// Both tables, each with one byte for each bucket: [`crate::Claim`].
    pub const TABLES: usize = 4096;
    /// 64 bits for each bucket, which only the agent uses. To get the number of the bucket's
    /// packets that this node has captured, modulo 2^64, add to this value the counts of each table
    /// whose claims give the bucket to this node.
    pub const SUMS: usize = TABLES + 2 * BUCKETS;
    /// Like [`SUMS`], but only for packets that this node captured in a union while it shared the
    /// bucket with another node.
    pub const SHARED: usize = SUMS + 8 * BUCKETS;
    /// The length of the row in bytes.
    pub const LEN: usize = SHARED + 8 * BUCKETS;

    const _: () = {
        let len = 8 * in_line::NUMBERS;
        assert!(BEACONS + len <= UPDATES && UPDATES + len <= TABLES);
    };
}

/// Offsets in [`COUNTS_MAP`], for lane 0.
///
/// A lane with a queue of its own counts each bucket's packets in 16 bits. So a table's counters
/// take 8 KiB of the CPU's first-level cache; counters of 64 bits would take 32 KiB. A counter
/// makes a half turn when its lowest 15 bits ([`HALF`]) wrap to 0. A second counter, of 64 bits,
/// counts the bucket's half turns. The BPF program stores the counter, and then counts the half
/// turn. Between these two steps, the counter's highest bit differs from the lowest bit of the
/// number of half turns.
pub mod counts {
    use super::{BUCKETS, Lanes};

    /// Bytes of one table's packet counters of 16 bits, one for each bucket.
    pub const SHORT_TABLE: usize = BUCKETS * 2;
    /// Bytes of a lane's counters of 16 bits, for both tables. These counters are at the beginning
    /// of the row. Only lanes with a queue of their own have these counters.
    pub const SHORT_LANE: usize = 2 * SHORT_TABLE;
    /// The number of a counter's lowest bits that wrap to 0 at each half turn.
    pub const HALF: u32 = 15;
    /// Bytes of one table's counters of 64 bits, one for each bucket. In a lane with a queue of its
    /// own they count half turns. In the lane that all other queues share they count packets.
    pub const TABLE: usize = BUCKETS * 8;
    /// Bytes of a lane's counters of 64 bits, for both tables.
    pub const LANE: usize = 2 * TABLE;
    /// Bytes of a lane's [`crate::native::Causes`], which follow the buckets' counters of all
    /// lanes.
    pub const CAUSES: usize = 128;

    /// The offset of beacons in a lane's [`crate::native::Causes`]. The other causes follow.
    pub const BEACONS: usize = 0;
    /// Topology updates.
    pub const UPDATES: usize = 8;
    /// Frames that look like a coordinator's but have a wrong number.
    pub const FORGED: usize = 16;
    /// Packets that lack the header fields of the selection key.
    pub const OTHERS: usize = 24;
    /// Packets that were lost because a ring was full.
    pub const LOST: usize = 32;
    /// This node's packets that did not pass the cluster's filter.
    pub const FILTERED: usize = 40;

    /// The offset of the counters of 64 bits of lane 0.
    pub const fn long(lanes: Lanes) -> usize {
        lanes.own() * SHORT_LANE
    }

    /// The offset of lane 0's counters of [`crate::native::Causes`].
    pub const fn causes(lanes: Lanes) -> usize {
        long(lanes) + lanes.counters() * LANE
    }

    /// The offset of each bucket's lost packets, 64 bits each. All lanes add to the same counters.
    pub const fn lost(lanes: Lanes) -> usize {
        causes(lanes) + lanes.counters() * CAUSES
    }

    /// The length of the row in bytes.
    pub const fn len(lanes: Lanes) -> usize {
        lost(lanes) + TABLE
    }
}

/// How the BPF program of one device uses the lanes of its node. A lane has counters for one
/// receive queue, which the driver serves on one CPU at a time. So the counters of a lane need no
/// atomic additions. Queues without a lane of their own share one more lane, with atomic additions.
/// (The lanes of the node's pool are others: each CPU has one.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    own: u8,
    first: u8,
    queues: u8,
    devices: u8,
}

/// Maximum number of lanes with a queue of their own.
const QUEUES_MAX: u8 = 64;

impl Lanes {
    /// No queue has a lane of its own. For hooks that may process packets of one queue on several
    /// CPUs at once (the kernel's generic XDP).
    pub const SHARED: Self = Self {
        own: 0,
        first: 0,
        queues: 0,
        devices: 1,
    };

    /// The lanes of a device with this number of receive queues.
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

    /// Returns the lanes of devices that have these numbers of receive queues. All devices use the
    /// same maps, but their queues have different lanes. If a device has 0 queues in this list, no
    /// queue of any device has a lane of its own. Lanes that one device does not need go to the
    /// other devices.
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

    /// Lanes whose [`Lanes::own`] is `own`, for an agent that opens the maps of an earlier agent.
    pub fn with_own(own: u32) -> Self {
        if own == 0 {
            Self::SHARED
        } else {
            Self::for_queues(own)
        }
    }

    /// The number of lanes with a queue of their own, over all devices.
    pub const fn own(self) -> usize {
        self.own as usize
    }

    /// The lane of queue 0 of the device.
    pub(crate) const fn first(self) -> usize {
        self.first as usize
    }

    /// How many queues of the device, counted from queue 0, have a lane of their own.
    pub const fn queues(self) -> usize {
        self.queues as usize
    }

    /// Whether the node has several devices, which share the same maps.
    pub(crate) const fn is_one_of_several(self) -> bool {
        self.devices > 1
    }

    /// The number of lanes of counters.
    pub const fn counters(self) -> usize {
        self.own() + 1
    }
}

pub(crate) fn control_map() -> MapSpec {
    MapSpec::given_rows(CONTROL_MAP, MapKind::Array, length(control::LEN), 1)
}

pub(crate) fn counts_map(lanes: Lanes) -> MapSpec {
    MapSpec::given_rows(COUNTS_MAP, MapKind::Array, length(counts::len(lanes)), 1)
}

pub(crate) fn pool_map() -> MapSpec {
    MapSpec::given_rows(POOL_MAP, MapKind::MapArray, 4, 1)
}

pub(crate) fn next_map() -> MapSpec {
    MapSpec::given_rows(NEXT_MAP, MapKind::ProgArray, 4, 1)
}

/// Converts a length. Every length here fits into 32 bits.
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
            assert_eq!([lanes.own(), lanes.counters()], [own, own + 1]);
        }
        assert_eq!(Lanes::SHARED.counters(), 1);
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
            "the two larger devices get equally many lanes"
        );
        assert_eq!(of(&[4, 0]), [(0, 0, 0); 2]);
        for several in [&[2, 2][..], &[4, 0]] {
            let mut lanes = Lanes::of_devices(several).into_iter();
            assert!(lanes.all(Lanes::is_one_of_several));
        }
        assert!(!Lanes::of_devices(&[0])[0].is_one_of_several());
    }
}
