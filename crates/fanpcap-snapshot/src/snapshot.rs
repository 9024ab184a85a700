//! The state of a network namespace at one moment. It has the devices, the packet sockets, the
//! members' counters, and the processes of the sockets.

use std::collections::BTreeMap;

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_group::view::{Place, View};
use fanpcap_linux::netlink::link;
use fanpcap_linux::packet::ETH_P_SILENT;

use crate::tables::GroupKey;

/// Counters older than this many seconds do not describe the present. A member that takes packets
/// refreshes its counters ten times a second.
pub const STALE_SECONDS: f64 = 2.0;

/// The state at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Seconds since 1970, UTC.
    pub unix_seconds: f64,
    /// Name of the machine.
    pub host: String,
    /// Inode of the network namespace.
    pub netns: u64,
    /// Name of the network namespace: "host" for the namespace of process 1, otherwise the name
    /// that ip-netns(8) gave it.
    pub netns_name: Option<String>,
    /// Devices with packet sockets, or only the requested device, sorted by name.
    pub devices: Vec<Device>,
    /// The devices' packet sockets.
    pub sockets: Vec<Socket>,
    /// The tables of steered groups, as far as we may read them.
    pub tables: BTreeMap<GroupKey, View>,
    /// For each device that is gone, or only for the requested one: how many members wait for it
    /// (`gone = wait`), and copies of `fanpcap run --restart`.
    pub waiting: BTreeMap<String, usize>,
}

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Interface index; 0 for all devices. For the groups of a poller, a number that no device has.
    pub ifindex: u32,
    /// Name; "any" for all devices, "gone" for a device that no longer exists.
    pub name: String,
    /// The device's counters; `None` for "any" and "gone". For a poller, packets that it has
    /// received, and that were dropped because it was late.
    pub counters: Option<link::Counters>,
    /// Why the host or a container may need the device's packets, if a member steals them
    /// (`steal = yes`).
    pub stolen_from_host: Option<&'static str>,
    /// The poller of which this is a device, if `ifindex` is not that of a device.
    pub poller: Option<OfPoller>,
}

/// The groups of a user at a poller, which are shown as a device of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfPoller {
    /// The name of the poller's socket, such as `packet:eth0`.
    pub socket: String,
    /// The device's name.
    pub device: String,
    /// The device's index in the poller's network namespace.
    pub ifindex: u32,
    /// The user of the groups.
    pub user: u32,
}

impl Device {
    /// The index for output: that of the device whose packets a poller takes.
    pub fn shown_ifindex(&self) -> u32 {
        self.poller.as_ref().map_or(self.ifindex, |it| it.ifindex)
    }
}

/// A packet socket.
#[derive(Clone, Debug, Default)]
pub struct Socket {
    /// Inode of the socket. At a poller, the member's number.
    pub inode: u32,
    /// Interface index of the socket's device.
    pub ifindex: u32,
    /// `ETH_P_*`; 0 for a socket that only sends, and at a poller.
    pub protocol: u16,
    /// The socket's fanout group.
    pub group: Option<Group>,
    /// The group that the socket's process has founded (`fanpcap serve`). The socket gets no
    /// packets.
    pub founds: Option<Group>,
    /// Bytes of the socket's receive ring.
    pub ring_bytes: Option<u64>,
    /// The XDP engine also captures packets that the host sends for the member.
    pub captures_sent: bool,
    /// Counters on the member page; `None` without a page, or if the member never read its
    /// counters.
    pub counts: Option<Counts>,
    /// The steering program's counters on the page, up to the last that is not 0; `None` if
    /// unknown.
    pub program_counters: Option<Vec<i64>>,
    /// When the member read the steering program's counters, in `CLOCK_MONOTONIC` nanoseconds;
    /// `u64::MAX` if the counters can't change.
    pub program_counted_ns: u64,
    /// Seconds since the application last looked for packets, or since the join if the application
    /// never looked; 0 while the application waits for packets. `None` if unknown.
    pub unread_seconds: Option<f64>,
    /// The application has never looked for packets.
    pub is_never_read: bool,
    /// The socket's device is gone, and its handle waits until the device is back (`gone = wait`).
    pub waits_for_device: bool,
    /// The socket has a member page.
    pub has_page: bool,
    /// A poller's member, which has no socket of its own in a group.
    pub is_at_poller: bool,
    /// The socket's member is gone, and the steered group keeps the socket in the member's slot.
    pub is_placeholder: bool,
    /// The socket's slot in a steered group's table, if we may read the table.
    pub place: Option<Place>,
    /// The member's class in a steered group, 0 to 63, from the table or the member's page.
    pub class: Option<u8>,
    /// The process that owns the socket; `None` if /proc hides it.
    pub process: Option<Process>,
}

impl Socket {
    /// Whether the XDP engine fills the member's rings.
    pub fn is_on_engine(&self) -> bool {
        self.group.is_some() && self.protocol == ETH_P_SILENT
    }
}

/// A fanout group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group's number.
    pub number: u16,
    /// The mode, with its options if a member has a page.
    pub mode: String,
    /// Which member began the group with mode `hash` instead of `flow`, and why.
    pub no_flow: Option<String>,
}

/// A member's counters since it joined.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// When the counters were read, in `CLOCK_MONOTONIC` nanoseconds.
    pub read_ns: u64,
    /// Packets that the kernel gave to the member, including dropped ones.
    pub received: u64,
    /// How many of the received packets were dropped because the ring was full.
    pub dropped: u64,
    /// Packets taken from the ring so far.
    pub taken: Option<u64>,
    /// The value of `taken` when the other counters were read.
    pub read_taken: Option<u64>,
    /// The reader waits at an empty ring and has published everything, so the counters are current,
    /// whatever their age.
    pub waits: bool,
}

/// Seconds from `from_ns` to `to_ns`; 0 if `to_ns` is not later than `from_ns`.
#[allow(
    clippy::cast_precision_loss,
    reason = "2^53 nanoseconds are a hundred days, to a nanosecond"
)]
pub fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

/// Rounds to a thousandth.
pub fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

/// A number of buckets as a percentage of all buckets.
#[allow(clippy::cast_precision_loss, reason = "there are 4096 buckets")]
pub fn percent(buckets: usize) -> f64 {
    (buckets as f64 * 1e5 / BUCKETS as f64).round() / 1e3
}

impl Socket {
    /// The group that the socket is in, or that its process has founded.
    pub fn of_group(&self) -> Option<&Group> {
        self.group.as_ref().or(self.founds.as_ref())
    }

    /// Seconds since the steering program's counters were read; `None` if they are unknown.
    pub fn program_counters_age(&self, at_ns: u64) -> Option<f64> {
        let known = self.program_counters.as_ref();
        known.map(|_| seconds(self.program_counted_ns, at_ns))
    }
}

impl Counts {
    /// Seconds since the counters were read.
    pub fn age(&self, at_ns: u64) -> f64 {
        seconds(self.read_ns, at_ns)
    }

    /// Whether the counters are too old to describe the present, if it is `at_ns` now.
    pub fn is_stale(&self, at_ns: u64) -> bool {
        !self.waits && self.age(at_ns) > STALE_SECONDS
    }

    /// Packets in the ring when the counters were read; `None` if they are stale at `at_ns`.
    /// Packets taken later are not subtracted, because the kernel has also added packets since.
    pub fn backlog(&self, at_ns: u64) -> Option<u64> {
        if self.waits {
            return Some(0);
        }
        let given = self.received.saturating_sub(self.dropped);
        let taken = self.read_taken.filter(|_| !self.is_stale(at_ns))?;
        Some(given.saturating_sub(taken))
    }
}

/// A mode with the engine of its group, XDP.
pub fn on_engine(mode: &str) -> String {
    on("xdp", mode)
}

/// A mode with the engine of its group. The engine precedes the text of a steering program, because
/// a long text is cut at its end.
pub fn on(engine: &str, mode: &str) -> String {
    match mode.contains(' ') {
        true => format!("on {engine}: {mode}"),
        false => format!("{mode} on {engine}"),
    }
}

/// A process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Process ID in our /proc; `None` if only the member page has one, perhaps from another PID
    /// namespace.
    pub pid: Option<u32>,
    /// Name of the executable.
    pub program: String,
    /// The CPUs that the process may run on, like `0-3,8`.
    pub affinity: Option<String>,
    /// The CPU on which the main thread last ran.
    pub last_cpu: Option<u32>,
    /// A signal or a debugger has stopped the process.
    pub is_stopped: bool,
    /// Our library in the process; `None` if it has none, or if this user may not know.
    pub library: Option<Library>,
}

/// Our library, as a process has loaded it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Library {
    /// The file's path, in the process's root directory.
    pub path: String,
    /// The library's version.
    pub version: String,
    /// The file was replaced or removed after the process had loaded it.
    pub is_replaced: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_what_was_given_and_not_taken() {
        let mut counts = Counts {
            read_ns: 1,
            received: 100,
            dropped: 20,
            taken: Some(95),
            read_taken: Some(70),
            waits: false,
        };
        // The packets taken since the reading are not subtracted.
        assert_eq!(counts.backlog(1), Some(10));
        // The member does not read the two numbers at the same instant, so more packets may seem
        // to be taken than given.
        counts.read_taken = Some(81);
        assert_eq!(counts.backlog(1), Some(0));
        counts.read_taken = None;
        assert_eq!(counts.backlog(1), None);
    }

    #[test]
    fn who_waits_is_never_stale_and_has_no_backlog() {
        let mut counts = Counts {
            read_ns: 1,
            received: 100,
            dropped: 20,
            taken: Some(80),
            read_taken: Some(70),
            waits: true,
        };
        let later = 60_000_000_000;
        assert!(!counts.is_stale(later) && counts.backlog(later) == Some(0));
        counts.waits = false;
        assert!(counts.is_stale(later) && counts.backlog(later).is_none());
    }
}
