//! Two snapshots of a made-up machine, for tests. The machine has two devices, members (one of them
//! stale), and sockets of other applications.

use fanpcap_group::page::MemberId;
use fanpcap_group::view::{FinalCounters, Ledger, Moved, Place, State, View};
use fanpcap_linux::netlink::link::Counters;

use crate::snapshot::{Counts, Device, Group, Process, Snapshot, Socket};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// The first snapshot, at 100 seconds.
pub fn before() -> Snapshot {
    let mut snapshot = look(100);
    snapshot.devices = vec![
        device(2, "eth0", [40_000_000, 30_000_000_000, 90, 5]),
        device(3, "wlan0", [1000, 90_000, 0, 0]),
    ];
    snapshot.sockets = sockets(99_950_000_000, [1_000_000, 500_000, 700_000], [0, 0, 0]);
    snapshot
}

/// The second snapshot, one second later. The second member's counters are a minute old.
pub fn after() -> Snapshot {
    let mut snapshot = look(101);
    snapshot.devices = vec![
        device(2, "eth0", [40_812_345, 30_815_000_000, 120, 5]),
        device(3, "wlan0", [1000, 90_000, 0, 0]),
    ];
    snapshot.sockets = sockets(
        100_950_000_000,
        [1_612_345, 500_100, 800_000],
        [0, 20, 1234],
    );
    snapshot.sockets[0].place = Some(place());
    snapshot.sockets[0].class = Some(0);
    snapshot.tables.insert((2, 7), table());
    snapshot
}

/// The second snapshot, with group 7 on XDP and its first member in class 2.
pub fn after_on_xdp() -> Snapshot {
    let mut snapshot = after();
    snapshot.sockets[0].class = Some(2);
    let ledger = Ledger {
        at_ns: 100 * SECOND,
        offered: 3_000_000,
        nowhere: 9000,
        no_member: 0,
        produced: 2_900_000,
        dropped: 1000,
        unwanted: 90_000,
        ..Ledger::default()
    };
    let table = View {
        ledger: Some(ledger),
        nowhere: Some(9000),
        ..table()
    };
    snapshot.tables.insert((2, 7), table);
    snapshot
}

/// The slot of the first member.
fn place() -> Place {
    Place {
        slot: 0,
        state: State::Live,
        member: MemberId::of_socket(11),
        pid: 4711,
        buckets: 2048,
        weight: 1,
        class: 0,
        since_ns: SECOND,
        taker: None,
        name: 0,
    }
}

/// The table of group 7. A member has ended.
fn table() -> View {
    View {
        places: vec![place()],
        gone: FinalCounters {
            members: 1,
            received: 1000,
            dropped: 0,
            taken: 970,
            inherited: 30,
            unread: 0,
            unknown: 0,
        },
        takeovers: 0,
        changes: 5,
        moved: Some(Moved {
            buckets: 1024,
            at_ns: 90 * SECOND,
        }),
        ledger: None,
        nowhere: Some(0),
        leveled: None,
        under_way: None,
    }
}

/// An empty snapshot.
pub fn look(seconds: u32) -> Snapshot {
    Snapshot {
        at_ns: u64::from(seconds) * SECOND,
        unix_seconds: f64::from(seconds) + 1_700_000_000.0,
        host: "probe-7".to_owned(),
        netns: 4_026_531_840,
        netns_name: Some("host".to_owned()),
        ..Snapshot::default()
    }
}

/// A device with its counters: packets, bytes, dropped, missed.
pub fn device(ifindex: u32, name: &str, counted: [u64; 4]) -> Device {
    let [packets, bytes, dropped, missed] = counted;
    Device {
        ifindex,
        name: name.to_owned(),
        counters: Some(Counters {
            rx_packets: packets,
            rx_bytes: bytes,
            rx_dropped: dropped,
            rx_missed: missed,
            ..Counters::default()
        }),
        stolen_from_host: None,
        poller: None,
    }
}

/// A member of group 7 on device 2.
pub fn member(inode: u32, pid: u32, counts: Counts) -> Socket {
    Socket {
        inode,
        ifindex: 2,
        protocol: 3,
        group: Some(Group {
            number: 7,
            mode: "hash+defrag".to_owned(),
            no_flow: None,
        }),
        ring_bytes: Some(16 << 20),
        captures_sent: false,
        counts: Some(counts),
        program_counters: Some(vec![12, 0, -3]),
        program_counted_ns: counts.read_ns,
        unread_seconds: Some(0.0),
        has_page: true,
        process: Some(Process {
            pid: Some(pid),
            program: "tcpdump".to_owned(),
            affinity: Some("1".to_owned()),
            last_cpu: Some(1),
            is_stopped: false,
            library: None,
        }),
        ..Socket::default()
    }
}

/// The counters of a member whose taken packets are unknown.
pub fn counts(read_ns: u64, received: u64, dropped: u64) -> Counts {
    Counts {
        read_ns,
        received,
        dropped,
        taken: None,
        read_taken: None,
        waits: false,
    }
}

fn sockets(read_ns: u64, received: [u64; 3], dropped: [u64; 3]) -> Vec<Socket> {
    let of = |index: usize, read_ns| Counts {
        taken: Some(received[index] - dropped[index]),
        read_taken: Some(received[index] - dropped[index] - 7),
        ..counts(read_ns, received[index], dropped[index])
    };
    let mut stale = member(12, 4712, of(1, 40 * SECOND));
    stale.program_counted_ns = read_ns;
    let mut never = member(14, 4714, counts(0, 0, 0));
    never.counts = None;
    never.unread_seconds = None;
    never.program_counters = None;
    if let Some(process) = &mut stale.process {
        process.affinity = Some("0-7".to_owned());
        process.last_cpu = Some(5);
    }
    // The stale member is stale only in the second snapshot.
    if read_ns < 100 * SECOND {
        stale.counts = Some(of(1, 39 * SECOND));
    }
    vec![
        member(11, 4711, of(0, read_ns)),
        stale,
        member(13, 4713, of(2, read_ns)),
        never,
        foreign(21, 2, Some(42), Some((5000, "suricata"))),
        foreign(22, 2, None, None),
        foreign(23, 3, None, Some((800, "wpa_supplicant"))),
    ]
}

/// A socket of an application that does not use our library.
fn foreign(inode: u32, ifindex: u32, group: Option<u16>, process: Option<(u32, &str)>) -> Socket {
    Socket {
        inode,
        ifindex,
        protocol: 3,
        group: group.map(|number| Group {
            number,
            mode: "qm".to_owned(),
            no_flow: None,
        }),
        ring_bytes: group.map(|_| 2 << 20),
        captures_sent: false,
        process: process.map(|(pid, program)| Process {
            pid: Some(pid),
            program: program.to_owned(),
            affinity: Some("0-7".to_owned()),
            last_cpu: Some(3),
            is_stopped: false,
            library: None,
        }),
        ..Socket::default()
    }
}
