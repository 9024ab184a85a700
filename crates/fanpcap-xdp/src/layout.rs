//! The layout that BPF programs and processes share: names and sizes of maps, and offsets in them.

use fanpcap_bpf::{MapKind, MapSpec};
use fanpcap_ring::pool::PoolShape;

/// Slots of a group.
pub const SLOTS: u32 = 256;

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
    MapSpec::given_rows(ROWS_MAP, MapKind::Array, ROW_LEN, SLOTS * shape.lanes())
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
