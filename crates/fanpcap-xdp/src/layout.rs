//! The layout that BPF programs and processes share: names and sizes of maps, and offsets in them.

use fanpcap_bpf::{MapKind, MapSpec};
use fanpcap_ring::pool::layout::{BLOCKS_MAX, words_len};

/// Slots of a group.
pub const SLOTS: u32 = 256;

/// The shape of the pools of a group's members. All members of a group have pools of one shape, but
/// of any number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
    /// A power of two. A CPU writes into the lane with its number.
    lanes: u32,
    /// Bytes of a block, a power of two.
    block_len: u32,
}

/// The most lanes.
const LANES_MAX: u32 = 256;

/// Bytes of the shortest and the longest block.
const BLOCK_LEN_MIN: u32 = 256 << 10;
const BLOCK_LEN_MAX: u32 = 1 << 20;

/// Bytes of a pool, if the application has set no size.
pub(crate) const POOL_LEN: u32 = 64 << 20;

/// So many blocks for each CPU that is online fit into [`POOL_LEN`], or 256 in all: a CPU that no
/// longer receives packets may keep a block.
const BLOCKS_A_CPU: u32 = 8;

impl PoolShape {
    /// Returns the shape for a machine with `possible` CPUs, of which `online` are online. `None`
    /// for more possible CPUs than a group has lanes, or if a pool can't have two blocks for each
    /// CPU that is online.
    pub fn for_cpus(possible: u32, online: u32) -> Option<Self> {
        let lanes = possible.max(1).next_power_of_two();
        let most = POOL_LEN / BLOCKS_A_CPU / online.clamp(1, LANES_MAX);
        let block_len = (most + 1).next_power_of_two() / 2;
        let fits = lanes <= LANES_MAX && 2 * online <= BLOCKS_MAX;
        // Above 128 lanes, the shortest block has no room for the pool's words.
        fits.then(|| Self {
            lanes,
            block_len: block_len
                .clamp(BLOCK_LEN_MIN, BLOCK_LEN_MAX)
                .max(words_len(lanes).next_power_of_two()),
        })
    }

    /// Returns the shape of the pools of a group whose array has `entries` rows, with blocks of
    /// `block_len` bytes. `None` if no group has such pools.
    pub(crate) fn of_group(entries: usize, block_len: u32) -> Option<Self> {
        let lanes = u32::try_from(entries).ok()? / SLOTS;
        let fits = lanes.is_power_of_two()
            && lanes <= LANES_MAX
            && entries == (lanes * SLOTS) as usize
            && block_len.is_power_of_two()
            && block_len >= words_len(lanes)
            && (BLOCK_LEN_MIN..=BLOCK_LEN_MAX).contains(&block_len);
        fits.then_some(Self { lanes, block_len })
    }

    /// The number of lanes.
    pub fn lanes(self) -> u32 {
        self.lanes
    }

    /// Bytes of a block.
    pub fn block_len(self) -> u32 {
        self.block_len
    }

    /// How many rows all slots together have.
    pub(crate) fn entries(self) -> u32 {
        SLOTS * self.lanes
    }
}

/// Bytes of a row: a value of [`ROWS_MAP`] or of [`LEDGER_MAP`]. A row is two cache lines, because
/// processors fetch cache lines in pairs.
pub(crate) const ROW_LEN: u32 = 128;

/// Names of the arrays of the members' maps, by slot: the pool (see
/// [`fanpcap_ring::pool::layout`]), and the ring buffer that wakes the reader.
pub(crate) const POOLS_MAP: &str = "pools";
pub(crate) const BELLS_MAP: &str = "bells";
/// Name of the ring buffer that wakes the reader of slot 0. It is no value of [`BELLS_MAP`], so
/// that a group's first member need not wait for the kernel to change that array.
pub(crate) const FIRST_BELL_MAP: &str = "first_bell";
/// Bytes of that ring buffer: a multiple of every page size.
pub(crate) const FIRST_BELL_LEN: u32 = 1 << 16;
/// Name of the array of rows, by slot and lane. The offsets in a row are in [`row`].
pub(crate) const ROWS_MAP: &str = "rows";
/// Name of the array of the group's own counters, by lane.
pub(crate) const LEDGER_MAP: &str = "ledger";
/// Name of the array of the members' filters, by slot.
pub(crate) const FILTERS_MAP: &str = "filters";
/// Name of the array of the members' filters for packets that the host sends, by slot. An array can
/// have BPF programs of one type only, so this array is separate.
pub(crate) const SENT_FILTERS_MAP: &str = "sent_filters";
/// Name of the array with the registry's settings, one row.
pub(crate) const SETTINGS_MAP: &str = "settings";
/// Name of the per-CPU array with one row: the stamp that the root stores for the present packet.
pub(crate) const STAMP_MAP: &str = "stamp";

/// Name of the array of the groups' BPF programs, by group slot.
pub(crate) const PROGRAMS_MAP: &str = "programs";

/// The most bytes of a received packet in a record. The kernel copies no more bytes with one call
/// (net/core/filter.c, `bpf_xdp_pointer`).
pub(crate) const RECEIVED_LONGEST: i32 = 65_535;

/// The most bytes of a sent packet in a record, or else half a block. BIG TCP sends packets of more
/// than 64 KiB.
pub(crate) const SENT_LONGEST: i32 = 262_143;

/// The offsets in a row. The member writes the first cache line, the BPF program the second.
pub(crate) mod row {
    /// 64 bits: the lane's position at which the reader is woken. A packet without room wakes the
    /// reader too. [`fanpcap_ring::pool::NEVER`] if the reader does not wait.
    pub(crate) const WAKE_AT: i16 = 0;
    /// 32 bits: how many bytes of a packet to keep; 0 if the slot gets no packets.
    pub(crate) const SNAPLEN: i16 = 8;
    /// 32 bits: the number of the application's filter that the slot has; 0 if the slot has none.
    pub(crate) const FILTER: i16 = 12;
    /// 64 bits: the member's socket, by `SO_COOKIE`. The member does not get packets that this
    /// socket sends.
    pub(crate) const SOCKET: i16 = 16;
    /// 32 bits: whether the member wants packets that the host sends.
    pub(crate) const SENT: i16 = 24;
    /// 64 bits: records written.
    pub(crate) const PRODUCED: i16 = 64;
    /// 64 bits: packets for which the pool had no room.
    pub(crate) const DROPPED: i16 = 72;
    /// 64 bits: packets that the slot's filter rejected, or that the slot's member sent.
    pub(crate) const UNWANTED: i16 = 80;
}

/// The offsets in a row of the group's counters. Each counter has 64 bits.
pub(crate) mod ledger {
    /// Deliveries of a packet after its first delivery, if the packet goes to several members.
    pub(crate) const AGAIN: i16 = 0;
    /// Packets that the steering program dropped.
    pub(crate) const NOWHERE: i16 = 8;
    /// Packets for which the group had no member, or whose slot had no pool.
    pub(crate) const NO_MEMBER: i16 = 16;
    /// 32 bits, in the first row: whether any member wants sent packets.
    pub(crate) const WANTS_SENT: i16 = 24;
    /// 32 bits, in the first row: bytes of a block. Only processes read this number.
    pub(crate) const BLOCK_LEN: i16 = 28;
}

/// The offsets in the registry's settings.
pub(crate) mod settings {
    /// 32 bits: the XDP verdict on packets on which no steering program decides.
    pub(crate) const VERDICT: i16 = 0;
    /// 32 bits: whether the device may have a root that stores a stamp.
    pub(crate) const HAS_ROOT: i16 = 4;
    /// 32 bits: the group slots of the device's root; 0 without a root. Only processes read this
    /// number, not BPF programs.
    pub(crate) const ROOT: i16 = 8;
}

// Values of [`settings::VERDICT`]: linux/bpf.h, enum xdp_action.
pub(crate) const XDP_DROP: u32 = 1;
pub(crate) const XDP_PASS: u32 = 2;

/// The most groups that a device can have.
pub const GROUP_SLOTS: u32 = 16;

pub(crate) const SETTINGS_LEN: u32 = 512;

/// The offsets in a record. The crate fanpcap-ring reads the
/// record.
pub(crate) mod record {
    /// 64 bits: nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) const STAMP: i16 = 0;
    /// 32 bits: bytes captured.
    pub(crate) const CAPLEN: i16 = 8;
    /// 32 bits: bytes on the wire.
    pub(crate) const LEN: i16 = 12;
    /// 16 bits: the receive queue.
    pub(crate) const QUEUE: i16 = 16;
    /// 16 bits of flags.
    pub(crate) const FLAGS: i16 = 18;
    /// The number of the bit in the flags that is set if another member also gets the packet.
    pub(crate) const COPY_BIT: i32 = 2;
    /// 32 bits: the number of the filter that the frame has passed; 0 if no filter has run.
    pub(crate) const FILTER: i16 = 20;
    /// The captured bytes.
    pub(crate) const DATA: i16 = 24;
}

/// The array of members' maps with this name.
pub(crate) fn members(name: &'static str) -> MapSpec {
    MapSpec::given_rows(name, MapKind::MapArray, 4, SLOTS)
}

pub(crate) fn first_bell() -> MapSpec {
    MapSpec {
        is_given: true,
        ..MapSpec::new(FIRST_BELL_MAP, MapKind::RingBuffer, 0, 0, FIRST_BELL_LEN)
    }
}

pub(crate) fn rows(shape: PoolShape) -> MapSpec {
    MapSpec::given_rows(ROWS_MAP, MapKind::Array, ROW_LEN, shape.entries())
}

/// The map of a group's own counters.
pub(crate) fn ledger_rows(shape: PoolShape) -> MapSpec {
    MapSpec::given_rows(LEDGER_MAP, MapKind::Array, ROW_LEN, shape.lanes())
}

/// The array of filters with this name.
pub(crate) fn filters(name: &'static str) -> MapSpec {
    MapSpec::given_rows(name, MapKind::ProgArray, 4, SLOTS)
}

pub(crate) fn settings_row() -> MapSpec {
    MapSpec::given_rows(SETTINGS_MAP, MapKind::Array, SETTINGS_LEN, 1)
}

pub(crate) fn stamp() -> MapSpec {
    MapSpec::given_rows(STAMP_MAP, MapKind::PerCpuArray, 8, 1)
}

pub(crate) fn programs() -> MapSpec {
    MapSpec::given_rows(PROGRAMS_MAP, MapKind::ProgArray, 4, GROUP_SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_ring::pool::layout::{SHORT, last_offset};

    /// All other CPUs keep a block with a record or two.
    #[test]
    fn one_cpu_has_room_for_100_ms_of_a_million_packets_a_second() {
        let record = 24 + 512 + 8;
        for online in 1..=40 {
            let block_len = PoolShape::for_cpus(online, online).unwrap().block_len();
            // The words take one block.
            let blocks = POOL_LEN / block_len - 1 - (online - 1);
            let records = blocks * (last_offset(block_len, SHORT) / record + 1);
            assert!(records >= 100_000, "{online} CPUs: {records}");
        }
    }

    #[test]
    fn the_shape_is_found_again_by_the_rows_and_the_block() {
        for (possible, online, lanes, block_len) in [
            (1, 1, 1, 1 << 20),
            (2, 2, 2, 1 << 20),
            (8, 8, 8, 1 << 20),
            (9, 9, 16, 512 << 10),
            (16, 16, 16, 512 << 10),
            (240, 4, 256, 1 << 20),
            (17, 17, 32, 256 << 10),
            (64, 64, 64, 256 << 10),
            (128, 128, 128, 256 << 10),
            (129, 128, 256, 512 << 10),
        ] {
            let shape = PoolShape::for_cpus(possible, online).unwrap();
            assert_eq!((shape.lanes(), shape.block_len()), (lanes, block_len));
            let found = PoolShape::of_group(shape.entries() as usize, block_len);
            assert_eq!(found, Some(shape));
        }
        assert_eq!(PoolShape::for_cpus(257, 2), None);
        assert_eq!(PoolShape::for_cpus(256, 129), None);
        let wrong = [
            (0, 1 << 20),
            (511, 1 << 20),
            (512, 1 << 21),
            (512, 3 << 17),
            (256 * 256, 256 << 10),
        ];
        for (entries, block_len) in wrong {
            assert_eq!(PoolShape::of_group(entries, block_len), None);
        }
    }
}
