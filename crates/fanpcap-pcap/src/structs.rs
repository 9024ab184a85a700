//! libpcap's structs, as laid out on 64-bit systems.

use fanpcap_bpf::Classic;
use std::ffi::c_uint;
use std::mem;
use std::ptr::null_mut;

/// `pcap_t`.
#[repr(C)]
pub struct Pcap {
    _opaque: [u8; 0],
}

/// `struct pcap_pkthdr` of a 64-bit system.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The time of capture: seconds since 1970.
    pub seconds: i64,
    /// Microseconds or nanoseconds of the second; the handle's [`Precision`](crate::Precision) says
    /// which.
    pub fraction: i64,
    /// Bytes captured.
    pub caplen: u32,
    /// Bytes on the wire.
    pub len: u32,
}

/// `struct pcap_stat`: counters since activation. They wrap around.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets that passed the filter, including dropped packets.
    pub received: u32,
    /// Packets of `received` lost in a full ring.
    pub dropped: u32,
    /// Packets that the device dropped.
    pub interface_dropped: u32,
}

/// `struct bpf_program`: a filter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BpfProgram {
    /// The number of instructions.
    pub len: c_uint,
    /// The first instruction.
    pub instructions: *mut Classic,
}

impl BpfProgram {
    /// An empty filter, for pcap_compile(3PCAP) to fill in.
    pub(crate) const EMPTY: Self = Self {
        len: 0,
        instructions: null_mut(),
    };
}

/// `struct pcap_fanout_stat` of `pcap/fanout.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FanoutStat {
    /// Size of the caller's struct in bytes.
    pub size: usize,
    /// The fields whose values are known, as bits `PCAP_FANOUT_STAT_*`.
    pub valid: u32,
    /// The handle's group.
    pub group: i32,
    /// Packets that reached this member, including dropped packets.
    pub received: u64,
    /// Packets of `received` lost in this member's full ring.
    pub dropped: u64,
    /// Sockets in the group.
    pub members: u64,
    /// Sum of `received` over the members.
    pub group_received: u64,
    /// Sum of `dropped` over the members.
    pub group_dropped: u64,
    /// Age of the oldest counters in the sums and in `late`, in nanoseconds.
    pub group_age_ns: u64,
    /// This member's counters of the steering program.
    pub counters: [u64; 64],
    /// Sums of `counters` over the members.
    pub group_counters: [u64; 64],
    /// Later fragments that came before the first fragment of their datagram.
    pub late: u64,
    /// Packets of the group that the steering program dropped.
    pub steered_nowhere: u64,
}

impl FanoutStat {
    /// Size of the struct in the extension's first release, which had no counters of steering
    /// programs.
    pub const FIRST_SIZE: usize = mem::offset_of!(Self, counters);

    /// Size of the struct without [`FanoutStat::steered_nowhere`].
    pub const SECOND_SIZE: usize = mem::offset_of!(Self, steered_nowhere);

    /// An empty struct for a member of this group.
    pub fn new(size: usize, group: i32) -> Self {
        Self {
            size,
            valid: 0,
            group,
            received: 0,
            dropped: 0,
            members: 0,
            group_received: 0,
            group_dropped: 0,
            group_age_ns: 0,
            counters: [0; 64],
            group_counters: [0; 64],
            late: 0,
            steered_nowhere: 0,
        }
    }
}

/// The result of pcap_fanout_stats(3PCAP) for a member and its group. `None` stands for a counter
/// that libpcap can't read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanoutStats {
    /// The group's number.
    pub group: i32,
    /// Packets for this member since it joined, including dropped packets.
    pub received: Option<u64>,
    /// Packets of `received` lost in a full ring.
    pub dropped: Option<u64>,
    /// The number of sockets in the group, of all processes.
    pub members: Option<u64>,
    /// Sum of `received` over the members.
    pub group_received: Option<u64>,
    /// Sum of `dropped` over the members.
    pub group_dropped: Option<u64>,
    /// Age of the oldest counters in `group_received` and `group_dropped`, in nanoseconds.
    pub group_age_ns: u64,
}

impl From<FanoutStat> for FanoutStats {
    fn from(stat: FanoutStat) -> Self {
        let known = |bit: u32, value: u64| (stat.valid & bit != 0).then_some(value);
        Self {
            group: stat.group,
            received: known(0x01, stat.received),
            dropped: known(0x02, stat.dropped),
            members: known(0x04, stat.members),
            group_received: known(0x08, stat.group_received),
            group_dropped: known(0x10, stat.group_dropped),
            group_age_ns: stat.group_age_ns,
        }
    }
}

/// `pcap_handler`. It may throw or longjmp.
pub type Callback = Option<unsafe extern "C-unwind" fn(*mut u8, *const Header, *const u8)>;
