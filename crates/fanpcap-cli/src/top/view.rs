//! The output of `top`, with the field names of its JSON. docs/top-json.md describes each field.

use fanpcap_snapshot::Offered;
use serde::Serialize;

/// Version of the JSON format. A new field does not change the version; a changed or removed field
/// increments it.
pub(crate) const SCHEMA: u32 = 1;

/// All output for one interval.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    pub(crate) schema: u32,
    /// End of the interval, in seconds since 1970, UTC.
    pub(crate) time_unix_seconds: f64,
    /// Length of the interval; `None` for the first view, which has no rates.
    pub(crate) interval_seconds: Option<f64>,
    /// Name of the machine.
    pub(crate) host: String,
    pub(crate) network_namespace: u64,
    pub(crate) network_namespace_name: Option<String>,
    /// Devices, by name.
    pub(crate) devices: Vec<Device>,
}

/// A device, with its groups and the packet sockets outside any group.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Device {
    /// Name.
    pub(crate) device: String,
    /// Interface index.
    pub(crate) ifindex: u32,
    /// The only device in `awaited_devices`.
    pub(crate) awaited_device: Option<String>,
    /// Of the device `gone`: the devices for which members wait, by name.
    pub(crate) awaited_devices: Vec<AwaitedDevice>,
    /// Packets that arrived.
    pub(crate) received_packets_total: Option<u64>,
    pub(crate) received_packets_per_second: Option<f64>,
    /// Bytes that arrived.
    pub(crate) received_bytes_total: Option<u64>,
    pub(crate) received_bits_per_second: Option<f64>,
    /// Packets lost before they reached a packet socket: the sum of the next two totals.
    pub(crate) lost_packets_total: Option<u64>,
    pub(crate) lost_packets_per_second: Option<f64>,
    /// `rx_dropped`.
    pub(crate) dropped_packets_total: Option<u64>,
    /// `rx_missed_errors`.
    pub(crate) missed_packets_total: Option<u64>,
    /// `rx_fifo_errors`.
    pub(crate) fifo_errors_total: Option<u64>,
    /// `rx_errors`.
    pub(crate) receive_errors_total: Option<u64>,
    /// Why the host may need the device's packets, if a member steals them.
    pub(crate) stolen_from_host: Option<&'static str>,
    /// Fan-out groups.
    pub(crate) groups: Vec<Group>,
    /// Packet sockets outside any group.
    pub(crate) sockets: Vec<Member>,
}

/// A device that is gone, and for which members wait.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AwaitedDevice {
    /// Its name.
    pub(crate) device: String,
    pub(crate) waiting_members_total: usize,
}

/// A fanout group. Each sum is over the members for which the number is known.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Group {
    /// Number.
    pub(crate) group: u16,
    pub(crate) mode: String,
    /// Number of members, including those that a filter of the output hides.
    pub(crate) members_total: usize,
    /// Sockets of members that are gone, which the group keeps in their slots.
    pub(crate) placeholders_total: usize,
    pub(crate) placeholders_ring_bytes: u64,
    /// Members of a steered group that are gone and whose rings have been read to the end.
    pub(crate) gone_members_total: Option<u64>,
    /// Packets given to the members that are gone.
    pub(crate) gone_received_packets_total: Option<u64>,
    /// Of the packets given to the members that are gone, those that were lost because a ring was
    /// full.
    pub(crate) gone_ring_full_drops_total: Option<u64>,
    /// Of the packets given to the members that are gone, those that other members took afterwards.
    pub(crate) gone_inherited_packets_total: Option<u64>,
    /// Of the packets given to the members that are gone, those that no member took.
    pub(crate) gone_unread_packets_total: Option<u64>,
    /// Members of a steered group that successors with the same name have replaced.
    pub(crate) takeovers_total: Option<u64>,
    /// Buckets that the last change of a steered group moved.
    pub(crate) last_moved_buckets: Option<u64>,
    /// Seconds since the last change of a steered group that moved buckets.
    pub(crate) last_moved_seconds_ago: Option<f64>,
    /// The fates of the packets that reached a group on XDP, or of a poller.
    pub(crate) ledger: Option<Offered>,
    /// Packets that the group's steering program dropped.
    pub(crate) steered_nowhere_packets_total: Option<u64>,
    pub(crate) members_with_rates: usize,
    /// Number of members whose rates are rough.
    pub(crate) members_with_rough_rates: usize,
    /// Number of members that no application reads.
    pub(crate) members_unread: usize,
    /// Number of members whose process is stopped.
    pub(crate) members_stopped: usize,
    pub(crate) packets_per_second: Option<f64>,
    /// Packets given to the members.
    pub(crate) received_packets_total: Option<u64>,
    /// Packets of the members that were lost because a ring was full.
    pub(crate) ring_full_drops_total: Option<u64>,
    pub(crate) ring_full_drops_per_second: Option<f64>,
    /// Packets that wait in the rings.
    pub(crate) backlog_packets: Option<u64>,
    /// Highest rate of a member divided by the mean; 1 if all rates are equal.
    pub(crate) skew: Option<f64>,
    /// Process that has founded the group and keeps it (`fanpcap run`, `fanpcap serve`).
    pub(crate) founder_pid: Option<u32>,
    pub(crate) program_counters: Option<Vec<i64>>,
    /// Age of the steering program's counters. It is the age of the oldest reading of a member.
    pub(crate) program_counters_age_seconds: Option<f64>,
    pub(crate) members: Vec<Member>,
}

/// A packet socket.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Member {
    /// Inode of the socket.
    pub(crate) socket: u32,
    /// Process ID.
    pub(crate) pid: Option<u32>,
    /// The program of the process.
    pub(crate) program: Option<String>,
    /// Whether the socket's device is gone, and its application waits until the device is back.
    pub(crate) waits_for_device: bool,
    /// Whether the member uses fanpcap's library and therefore has a page.
    pub(crate) ours: bool,
    /// CPUs that the process may run on.
    pub(crate) cpu_affinity: Option<String>,
    /// CPU on which the process last ran.
    pub(crate) last_cpu: Option<u32>,
    /// `ETH_P_*`.
    pub(crate) protocol: u16,
    pub(crate) ring_bytes: Option<u64>,
    /// The member's slot in a steered group.
    pub(crate) slot: Option<u8>,
    /// Buckets that the member owns.
    pub(crate) buckets: Option<usize>,
    /// The member's buckets in percent of all buckets.
    pub(crate) buckets_percent: Option<f64>,
    /// The member's weight; 0 if it was drained.
    pub(crate) weight: Option<u16>,
    /// The member's class in a steered group; 0 is the default class.
    pub(crate) class: Option<u8>,
    pub(crate) counters_age_seconds: Option<f64>,
    /// Seconds since the application last looked for packets, or since the join if the application
    /// never looked.
    pub(crate) unread_seconds: Option<f64>,
    /// Whether the member has a share of the group's packets but its application does not look for
    /// them.
    pub(crate) is_unread: bool,
    /// Whether the counters are too old to describe the present.
    pub(crate) stale: bool,
    /// Whether a signal or a debugger has stopped the process.
    pub(crate) is_stopped: bool,
    /// The version of our library in the process.
    pub(crate) library_version: Option<String>,
    /// Whether the library's file was replaced or removed after the process had loaded it.
    pub(crate) library_is_replaced: Option<bool>,
    /// Packets given to the member since it joined, including dropped ones.
    pub(crate) received_packets_total: Option<u64>,
    pub(crate) packets_per_second: Option<f64>,
    /// Seconds between the two readings of the counters from which the rates are computed.
    pub(crate) rate_window_seconds: Option<f64>,
    /// Whether the rate window differs much from the interval, so that the rates are rough.
    pub(crate) rate_is_rough: bool,
    /// The member's share of the group's packets, in percent.
    pub(crate) share_percent: Option<f64>,
    /// Packets lost because the ring was full.
    pub(crate) ring_full_drops_total: Option<u64>,
    pub(crate) ring_full_drops_per_second: Option<f64>,
    /// Packets that were taken from the ring.
    pub(crate) taken_packets_total: Option<u64>,
    /// Packets that wait in the ring.
    pub(crate) backlog_packets: Option<u64>,
    pub(crate) program_counters: Option<Vec<i64>>,
    pub(crate) program_counters_age_seconds: Option<f64>,
}
