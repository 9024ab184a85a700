//! What `top` shows, with the names that its JSON has: docs/top-json.md tells of each field.

use fanpcap_snapshot::Offered;
use serde::Serialize;

/// Version of the JSON's form: a field that is new leaves it, one that changes or goes raises it.
pub(crate) const SCHEMA: u32 = 1;

/// Everything, over one interval.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    /// [`SCHEMA`].
    pub(crate) schema: u32,
    /// When the interval ended, seconds since 1970, UTC.
    pub(crate) time_unix_seconds: f64,
    /// Its length; none for a first look, which has no rates.
    pub(crate) interval_seconds: Option<f64>,
    /// Name of the machine.
    pub(crate) host: String,
    /// Inode of the network namespace.
    pub(crate) network_namespace: u64,
    /// Its name.
    pub(crate) network_namespace_name: Option<String>,
    /// Devices, by name.
    pub(crate) devices: Vec<Device>,
}

/// A device, with its groups and the packet sockets that are in none.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Device {
    /// Name.
    pub(crate) device: String,
    /// Interface index.
    pub(crate) ifindex: u32,
    /// Packets that arrived.
    pub(crate) received_packets_total: Option<u64>,
    /// The same, per second.
    pub(crate) received_packets_per_second: Option<f64>,
    /// Bytes that arrived.
    pub(crate) received_bytes_total: Option<u64>,
    /// Bits that arrived, per second.
    pub(crate) received_bits_per_second: Option<f64>,
    /// Packets lost before any packet socket: the next two together.
    pub(crate) lost_packets_total: Option<u64>,
    /// The same, per second.
    pub(crate) lost_packets_per_second: Option<f64>,
    /// `rx_dropped`.
    pub(crate) dropped_packets_total: Option<u64>,
    /// `rx_missed_errors`.
    pub(crate) missed_packets_total: Option<u64>,
    /// `rx_fifo_errors`.
    pub(crate) fifo_errors_total: Option<u64>,
    /// `rx_errors`.
    pub(crate) receive_errors_total: Option<u64>,
    /// Why the host may need the device's packets, while a member has it lose them.
    pub(crate) stolen_from_host: Option<&'static str>,
    /// Fan-out groups.
    pub(crate) groups: Vec<Group>,
    /// Packet sockets in no group.
    pub(crate) sockets: Vec<Member>,
}

/// A fan-out group. Its sums are over the members for which the figure is known.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Group {
    /// Number.
    pub(crate) group: u16,
    /// Mode.
    pub(crate) mode: String,
    /// How many members it has; a filter may show fewer.
    pub(crate) members_total: usize,
    /// Sockets of members that are gone, which the group keeps in their slots.
    pub(crate) placeholders_total: usize,
    /// Bytes of their rings.
    pub(crate) placeholders_ring_bytes: u64,
    /// Members of a steered group that are gone, whose rings are read out.
    pub(crate) gone_members_total: Option<u64>,
    /// Packets given to these.
    pub(crate) gone_received_packets_total: Option<u64>,
    /// Of these, lost as a ring was full.
    pub(crate) gone_ring_full_drops_total: Option<u64>,
    /// Of these, taken by other members after them.
    pub(crate) gone_inherited_packets_total: Option<u64>,
    /// Of these, taken by nobody.
    pub(crate) gone_unread_packets_total: Option<u64>,
    /// Members of a steered group that others of their names have succeeded.
    pub(crate) takeovers_total: Option<u64>,
    /// Buckets that the last change of a steered group moved.
    pub(crate) last_moved_buckets: Option<u64>,
    /// How long ago.
    pub(crate) last_moved_seconds_ago: Option<f64>,
    /// What has become of the packets that came to a group on XDP.
    pub(crate) ledger: Option<Offered>,
    /// How many members have a rate.
    pub(crate) members_with_rates: usize,
    /// How many of these have a rough one.
    pub(crate) members_with_rough_rates: usize,
    /// How many members nobody reads.
    pub(crate) members_unread: usize,
    /// Packets per second.
    pub(crate) packets_per_second: Option<f64>,
    /// Packets given to the members.
    pub(crate) received_packets_total: Option<u64>,
    /// Of these, lost as a ring was full.
    pub(crate) ring_full_drops_total: Option<u64>,
    /// The same, per second.
    pub(crate) ring_full_drops_per_second: Option<f64>,
    /// Packets that wait in the rings.
    pub(crate) backlog_packets: Option<u64>,
    /// Highest rate of a member over the mean; 1 is even.
    pub(crate) skew: Option<f64>,
    /// The steering program's counters.
    pub(crate) program_counters: Option<Vec<i64>>,
    /// Their age; of a group's, that of the oldest.
    pub(crate) program_counters_age_seconds: Option<f64>,
    /// The members.
    pub(crate) members: Vec<Member>,
}

/// A packet socket.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Member {
    /// Inode of the socket.
    pub(crate) socket: u32,
    /// Process.
    pub(crate) pid: Option<u32>,
    /// Its program.
    pub(crate) program: Option<String>,
    /// Whether it runs on this library and so has a page.
    pub(crate) ours: bool,
    /// CPUs that it may run on.
    pub(crate) cpu_affinity: Option<String>,
    /// CPU that it ran on last.
    pub(crate) last_cpu: Option<u32>,
    /// `ETH_P_*`.
    pub(crate) protocol: u16,
    /// Bytes of the ring.
    pub(crate) ring_bytes: Option<u64>,
    /// Its slot in a steered group.
    pub(crate) slot: Option<u8>,
    /// Buckets that it owns there.
    pub(crate) buckets: Option<usize>,
    /// The same in percent of all.
    pub(crate) buckets_percent: Option<f64>,
    /// Its weight among the others; 0: it was drained.
    pub(crate) weight: Option<u16>,
    /// Its class in a steered group; 0: the default class.
    pub(crate) class: Option<u8>,
    /// Age of the counters.
    pub(crate) counters_age_seconds: Option<f64>,
    /// Seconds since the application looked for packets, or joined if it never has.
    pub(crate) unread_seconds: Option<f64>,
    /// Whether it has a share of the group's packets, and does not look for them.
    pub(crate) is_unread: bool,
    /// Whether the counters are too old to tell of now.
    pub(crate) stale: bool,
    /// Packets given to the member, since it joined, dropped ones included.
    pub(crate) received_packets_total: Option<u64>,
    /// The same, per second.
    pub(crate) packets_per_second: Option<f64>,
    /// Seconds between the two readings of the counters that the rates are over.
    pub(crate) rate_window_seconds: Option<f64>,
    /// Whether that differs much from the interval, so that the rates are not quite of it.
    pub(crate) rate_is_rough: bool,
    /// Its part of the group's packets, percent.
    pub(crate) share_percent: Option<f64>,
    /// Packets lost as the ring was full.
    pub(crate) ring_full_drops_total: Option<u64>,
    /// The same, per second.
    pub(crate) ring_full_drops_per_second: Option<f64>,
    /// Packets that were taken from the ring.
    pub(crate) taken_packets_total: Option<u64>,
    /// Packets that wait in the ring.
    pub(crate) backlog_packets: Option<u64>,
    /// The steering program's counters.
    pub(crate) program_counters: Option<Vec<i64>>,
    /// Their age.
    pub(crate) program_counters_age_seconds: Option<f64>,
}
