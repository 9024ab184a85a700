//! The layout that BPF programs and processes share: names and sizes of maps, and offsets in them.

use fanpcap_bpf::{MapKind, MapSpec};

/// Slots of a group.
pub const SLOTS: u32 = 256;

/// A slot's lanes, each with a ring buffer. There is one lane for each receive queue, but there are
/// at most 16 of these lanes: a queue beyond the 16th shares the lane of another queue. One further
/// lane is for packets that the host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// The number of lanes for received packets, a power of two.
    received: u32,
}

/// The most lanes for received packets.
const RECEIVED_MAX: u32 = 16;

impl Lanes {
    /// Returns the lanes of a device with this many receive queues.
    pub fn for_queues(queues: u32) -> Self {
        let queues = queues.clamp(1, RECEIVED_MAX);
        Self {
            received: queues.next_power_of_two(),
        }
    }

    /// Returns the lanes of a group whose array has `entries` rows. `None` if no group has such an
    /// array.
    pub(crate) fn of_entries(entries: usize) -> Option<Self> {
        let received = u32::try_from(entries).ok()? / SLOTS / 2;
        let lanes = Self { received };
        let fits = received.is_power_of_two() && received <= RECEIVED_MAX;
        (fits && lanes.entries() as usize == entries).then_some(lanes)
    }

    /// The number of lanes for received packets. The lane with this number is the lane for sent
    /// packets.
    pub fn received(self) -> u32 {
        self.received
    }

    /// How many entries one slot has in the arrays of ring buffers and of rows: a power of two.
    pub(crate) fn stride(self) -> u32 {
        2 * self.received
    }

    /// How many entries all slots together have in these arrays.
    pub(crate) fn entries(self) -> u32 {
        SLOTS * self.stride()
    }
}

/// Bytes of a row: a value of [`ROWS_MAP`] or of [`LEDGER_MAP`]. A row is two cache lines, because
/// processors fetch cache lines in pairs.
pub(crate) const ROW_LEN: u32 = 128;

/// Name of the array of ring buffers, by slot and lane.
pub(crate) const RINGS_MAP: &str = "rings";
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

/// The most bytes of a packet in a record.
pub(crate) const LONGEST: i32 = fanpcap_ring::LONGEST as i32;
/// The most bytes of a received packet in a record. The kernel copies no more bytes with one call
/// (net/core/filter.c, `bpf_xdp_pointer`).
pub(crate) const RECEIVED_LONGEST: i32 = 65_535;

/// The offsets in a row. The member writes the first cache line, the BPF program the second.
pub(crate) mod row {
    /// 64 bits: the value of [`PRODUCED`] at which the reader is woken.
    pub(crate) const WAKE_AT: i16 = 0;
    /// 32 bits: how many bytes of a packet to keep; 0 if the slot gets no packets.
    pub(crate) const SNAPLEN: i16 = 8;
    /// 32 bits: the number of the application's filter that the slot has; 0 if the slot has none.
    pub(crate) const FILTER: i16 = 12;
    /// 64 bits: the member's socket, by `SO_COOKIE`. The member does not get packets that this
    /// socket sends.
    pub(crate) const SOCKET: i16 = 16;
    /// 64 bits: records written.
    pub(crate) const PRODUCED: i16 = 64;
    /// 64 bits: packets for which the ring had no room.
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
    /// Packets for which the group had no member, or whose slot had no ring.
    pub(crate) const NO_MEMBER: i16 = 16;
    /// 32 bits, in the row of the lane for sent packets: whether any member wants sent packets.
    pub(crate) const WANTS_SENT: i16 = 24;
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

/// The offsets in a record, from the end of the kernel's header. The crate fanpcap-ring reads the
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

pub(crate) fn rings(lanes: Lanes) -> MapSpec {
    MapSpec::given_rows(RINGS_MAP, MapKind::MapArray, 4, lanes.entries())
}

pub(crate) fn rows(lanes: Lanes) -> MapSpec {
    MapSpec::given_rows(ROWS_MAP, MapKind::Array, ROW_LEN, lanes.entries())
}

/// The map of a group's own counters.
pub(crate) fn ledger_rows(lanes: Lanes) -> MapSpec {
    MapSpec::given_rows(LEDGER_MAP, MapKind::Array, ROW_LEN, lanes.stride())
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

    #[test]
    fn lanes_are_found_again_by_the_number_of_rows() {
        for (queues, received) in [(0, 1), (1, 1), (2, 2), (3, 4), (16, 16), (63, 16)] {
            let lanes = Lanes::for_queues(queues);
            assert_eq!(lanes.received(), received);
            assert_eq!(Lanes::of_entries(lanes.entries() as usize), Some(lanes));
        }
        for wrong in [0, 256, 511, 513, 1 << 14] {
            assert_eq!(Lanes::of_entries(wrong), None, "{wrong}");
        }
    }
}
