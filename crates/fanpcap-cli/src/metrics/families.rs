//! The metrics, and their samples of a snapshot. An unknown figure has no sample.

use std::collections::BTreeMap;

use fanpcap_group::view::{Place, View};
use fanpcap_linux::netlink::link::Counters;

use super::exposition::{Family, Kind, Label, Number};
use crate::snapshot::{Counts, Device, Snapshot, Socket};

/// A sample's labels and number.
type Sample = (Vec<Label>, Number);

/// A counter of a device, and the value of the label `cause`, if the metric has that label.
type Figure<'c> = (Option<&'c str>, fn(&Counters) -> u64);

/// A figure of a group's table, and the value of the label `fate`, if the metric has that label.
type OfTable<'f> = (Option<&'f str>, fn(&View) -> u64);

/// All metrics of a snapshot.
pub(crate) fn of(snapshot: &Snapshot) -> Vec<Family> {
    let (members, groups, devices) = (members(snapshot), groups(snapshot), devices(snapshot));
    let of_program = [
        unread(snapshot),
        program_counters(snapshot),
        program_counters_age(snapshot),
    ];
    let members = members.into_iter().chain(of_program);
    let members = members.chain(places(snapshot));
    let groups = groups.into_iter().chain(tables(snapshot));
    members.chain(groups).chain(devices).collect()
}

fn members(snapshot: &Snapshot) -> [Family; 5] {
    let samples = |figure: &dyn Fn(&Counts) -> Option<Number>, cause: Option<&str>| {
        let mut samples = of_members(snapshot, |socket| figure(socket.counts.as_ref()?));
        for (labels, _) in &mut samples {
            labels.extend(cause.map(|cause| ("cause", cause.to_owned())));
        }
        samples
    };
    let age = |counts: &Counts| Some(Number::Seconds(counts.age(snapshot.at_ns)));
    let backlog = |counts: &Counts| counts.backlog(snapshot.at_ns).map(Number::Whole);
    [
        counter(
            "fanpcap_member_received_packets_total",
            "Packets that the kernel gave to the member, dropped ones included.",
            samples(&|counts| Some(Number::Whole(counts.received)), None),
        ),
        counter(
            "fanpcap_member_dropped_packets_total",
            "Packets given to the member that were lost.",
            samples(
                &|counts| Some(Number::Whole(counts.dropped)),
                Some("ring_full"),
            ),
        ),
        counter(
            "fanpcap_member_taken_packets_total",
            "Packets that the member has taken from its ring.",
            samples(&|counts| counts.taken.map(Number::Whole), None),
        ),
        gauge(
            "fanpcap_member_backlog_packets",
            "Packets that waited in the member's ring when it read its counters, 0 while it waits at an empty ring; \
             none when the counters are older than 2 seconds.",
            samples(&backlog, None),
        ),
        gauge(
            "fanpcap_member_counters_age_seconds",
            "Time since the member read its counters: it does so ten times a second while it takes packets, and not \
             while it waits at an empty ring.",
            samples(&age, None),
        ),
    ]
}

/// A sample for each member whose figure is known.
fn of_members(snapshot: &Snapshot, figure: impl Fn(&Socket) -> Option<Number>) -> Vec<Sample> {
    let of_member = |socket: &Socket| {
        let number = figure(socket)?;
        Some((member_labels(snapshot, socket)?, number))
    };
    snapshot.sockets.iter().filter_map(of_member).collect()
}

/// Seconds since each application last looked for packets.
fn unread(snapshot: &Snapshot) -> Family {
    gauge(
        "fanpcap_member_unread_seconds",
        "Time since the application looked for packets, or joined if it never has; 0 while it waits for some. A member that is \
         never read loses its share.",
        of_members(snapshot, |socket| {
            socket.unread_seconds.map(Number::Seconds)
        }),
    )
}

/// The members' slots and buckets.
fn places(snapshot: &Snapshot) -> [Family; 2] {
    let samples = |number: fn(&Place) -> u64| {
        of_members(snapshot, |socket| {
            socket.place.as_ref().map(|it| Number::Whole(number(it)))
        })
    };
    [
        gauge(
            "fanpcap_member_slot",
            "The member's slot in the table of a group with a steering program.",
            samples(|place| place.slot.into()),
        ),
        gauge(
            "fanpcap_member_buckets",
            "Buckets that the member owns, of 4096; 0 also of one that was drained.",
            samples(|place| place.buckets as u64),
        ),
    ]
}

/// A sample for each counter of each member's steering program.
fn program_counters(snapshot: &Snapshot) -> Family {
    let of_member = |socket: &Socket| {
        let labels = member_labels(snapshot, socket)?;
        let counters = socket.program_counters.as_ref()?.iter().enumerate();
        let sample = counters.map(|(number, &counter)| {
            let mut labels = labels.clone();
            labels.push(("counter", number.to_string()));
            (labels, Number::Signed(counter))
        });
        Some(sample.collect::<Vec<_>>())
    };
    let samples = snapshot.sockets.iter().filter_map(of_member);
    gauge(
        "fanpcap_member_program_counter",
        "What the group's steering program has counted on the member's packets, by the counter's number.",
        samples.flatten().collect(),
    )
}

/// Age of the steering programs' counters.
fn program_counters_age(snapshot: &Snapshot) -> Family {
    let age = |socket: &Socket| socket.program_counters_age(snapshot.at_ns);
    gauge(
        "fanpcap_member_program_counters_age_seconds",
        "Time since the member read the steering program's counters: it does so ten times a second while it is in a read, \
         also while no packet reaches it; 0 where the program has none.",
        of_members(snapshot, |socket| age(socket).map(Number::Seconds)),
    )
}

/// Labels that identify a member. They include the socket, as a process may have several members.
/// `None` for sockets without a group or a process.
fn member_labels(snapshot: &Snapshot, socket: &Socket) -> Option<Vec<Label>> {
    let (group, process) = (socket.group.as_ref()?, socket.process.as_ref()?);
    let pid = process.pid.map(|pid| pid.to_string());
    let mut labels = device_labels(snapshot, socket.ifindex);
    labels.extend([
        ("group", group.number.to_string()),
        ("mode", group.mode.clone()),
        ("pid", pid.unwrap_or_default()),
        ("program", process.program.clone()),
        ("socket", socket.inode.to_string()),
    ]);
    Some(labels)
}

/// The labels include the index: a device may be named `any`, as is the entry for all devices.
fn device_labels(snapshot: &Snapshot, ifindex: u32) -> Vec<Label> {
    let mut devices = snapshot.devices.iter();
    let device = devices.find(|device| device.ifindex == ifindex);
    let name = device.map_or_else(String::new, |device| device.name.clone());
    vec![("device", name), ("ifindex", ifindex.to_string())]
}

fn groups(snapshot: &Snapshot) -> [Family; 4] {
    let mut groups: BTreeMap<(u32, u16, &str), OfGroup> = BTreeMap::new();
    for socket in &snapshot.sockets {
        if let Some(group) = &socket.group {
            let entry = groups.entry((socket.ifindex, group.number, &group.mode));
            let of_group = entry.or_default();
            if socket.is_placeholder {
                of_group.placeholders += 1;
                of_group.placeholder_bytes += socket.ring_bytes.unwrap_or(0);
            } else {
                of_group.members += 1;
                of_group.counted += u64::from(socket.counts.is_some());
            }
        }
    }
    let samples = |number: fn(&OfGroup) -> u64| -> Vec<Sample> {
        let sample = |(group, numbers): (&(u32, u16, &str), _)| {
            let (ifindex, group, mode) = group;
            let mut labels = device_labels(snapshot, *ifindex);
            labels.extend([("group", group.to_string()), ("mode", (*mode).to_owned())]);
            (labels, Number::Whole(number(numbers)))
        };
        groups.iter().map(sample).collect()
    };
    [
        gauge(
            "fanpcap_group_members",
            "Packet sockets in the fan-out group, of any program.",
            samples(|numbers| numbers.members),
        ),
        gauge(
            "fanpcap_group_members_with_counters",
            "Members of the group that tell their counters: programs on this library.",
            samples(|numbers| numbers.counted),
        ),
        gauge(
            "fanpcap_group_placeholders",
            "Sockets of members that are gone, which a group with a steering program keeps until newcomers take their slots.",
            samples(|numbers| numbers.placeholders),
        ),
        gauge(
            "fanpcap_group_placeholder_ring_bytes",
            "Memory of these sockets' rings.",
            samples(|numbers| numbers.placeholder_bytes),
        ),
    ]
}

/// What the tables of groups with a steering program say.
fn tables(snapshot: &Snapshot) -> [Family; 6] {
    let samples = |figures: &[OfTable<'_>]| {
        let mut samples = Vec::new();
        for ((ifindex, group), view) in &snapshot.tables {
            let is_it = |it: &&Socket| {
                it.ifindex == *ifindex && it.group.as_ref().is_some_and(|it| it.number == *group)
            };
            let socket = snapshot.sockets.iter().find(is_it);
            let Some(of_socket) = socket.and_then(|it| it.group.as_ref()) else {
                continue;
            };
            for (fate, figure) in figures {
                let mut labels = device_labels(snapshot, *ifindex);
                labels.extend([
                    ("group", group.to_string()),
                    ("mode", of_socket.mode.clone()),
                ]);
                labels.extend(fate.map(|fate| ("fate", fate.to_owned())));
                samples.push((labels, Number::Whole(figure(view))));
            }
        }
        samples
    };
    [
        counter(
            "fanpcap_group_table_changes_total",
            "Changes of slots or buckets in a group with a steering program.",
            samples(&[(None, |view| view.changes)]),
        ),
        counter(
            "fanpcap_group_takeovers_total",
            "Members that others of their names have succeeded.",
            samples(&[(None, |view| view.takeovers)]),
        ),
        gauge(
            "fanpcap_group_last_moved_buckets",
            "Buckets that the last change moved, of 4096.",
            samples(&[(None, |view| view.moved.map_or(0, |it| it.buckets))]),
        ),
        counter(
            "fanpcap_group_gone_members_total",
            "Members of a group with a steering program that have ended, and whose rings are read out.",
            samples(&[(None, |view| view.gone.members)]),
        ),
        counter(
            "fanpcap_group_gone_received_packets_total",
            "Packets that the kernel gave to these, dropped ones included.",
            samples(&[(None, |view| view.gone.received)]),
        ),
        counter(
            "fanpcap_group_gone_packets_total",
            "The same by what became of them.",
            samples(&[
                (Some("dropped"), |view| view.gone.dropped),
                (Some("taken"), |view| view.gone.taken),
                (Some("inherited"), |view| view.gone.inherited),
                (Some("unread"), |view| view.gone.unread),
            ]),
        ),
    ]
}

/// Figures of a group.
#[derive(Default)]
struct OfGroup {
    members: u64,
    /// Members with counters.
    counted: u64,
    placeholders: u64,
    placeholder_bytes: u64,
}

fn devices(snapshot: &Snapshot) -> [Family; 5] {
    let each = |figures: &[Figure<'_>]| -> Vec<Sample> {
        let mut samples = Vec::new();
        for device in &snapshot.devices {
            for (cause, figure) in figures {
                let Some(counters) = &device.counters else {
                    continue;
                };
                let mut labels = device_labels(snapshot, device.ifindex);
                labels.extend(cause.map(|cause| ("cause", cause.to_owned())));
                samples.push((labels, Number::Whole(figure(counters))));
            }
        }
        samples
    };
    [
        counter(
            "fanpcap_device_received_packets_total",
            "Packets that arrived at the device.",
            each(&[(None, |counters| counters.rx_packets)]),
        ),
        counter(
            "fanpcap_device_received_bytes_total",
            "Bytes that arrived at the device.",
            each(&[(None, |counters| counters.rx_bytes)]),
        ),
        counter(
            "fanpcap_device_dropped_packets_total",
            "Packets lost before any packet socket: dropped by kernel or driver, or missed by the device.",
            each(&[
                (Some("dropped"), |counters| counters.rx_dropped),
                (Some("missed"), |counters| counters.rx_missed),
            ]),
        ),
        counter(
            "fanpcap_device_receive_errors_total",
            "Packets that arrived with an error of any kind.",
            each(&[(None, |counters| counters.rx_errors)]),
        ),
        gauge(
            "fanpcap_device_packet_sockets",
            "Packet sockets on the device, in a group or not.",
            packet_sockets(snapshot),
        ),
    ]
}

fn packet_sockets(snapshot: &Snapshot) -> Vec<Sample> {
    let sample = |device: &Device| {
        let on_device = |socket: &&Socket| socket.ifindex == device.ifindex;
        let number = snapshot.sockets.iter().filter(on_device).count();
        let labels = device_labels(snapshot, device.ifindex);
        (labels, Number::Whole(number as u64))
    };
    snapshot.devices.iter().map(sample).collect()
}

fn counter(name: &'static str, help: &'static str, samples: Vec<Sample>) -> Family {
    let kind = Kind::Counter;
    Family {
        name,
        help,
        kind,
        samples,
    }
}

fn gauge(name: &'static str, help: &'static str, samples: Vec<Sample>) -> Family {
    let kind = Kind::Gauge;
    Family {
        name,
        help,
        kind,
        samples,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::exposition;
    use crate::top::fixture;

    #[test]
    fn a_members_counters_have_its_labels() {
        let text = exposition::text(&of(&fixture::after()));
        let labels = "device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\",pid=\"4713\",\
                      program=\"tcpdump\",socket=\"13\"";
        for (name, more, number) in [
            ("received_packets_total", "", "800000"),
            ("dropped_packets_total", ",cause=\"ring_full\"", "1234"),
            ("taken_packets_total", "", "798766"),
            ("backlog_packets", "", "7"),
            ("counters_age_seconds", "", "0.050"),
            ("program_counters_age_seconds", "", "0.050"),
            ("program_counter", ",counter=\"0\"", "12"),
            ("program_counter", ",counter=\"2\"", "-3"),
        ] {
            let line = format!("\nfanpcap_member_{name}{{{labels}{more}}} {number}\n");
            assert!(text.contains(&line), "{line} in:\n{text}");
        }
        for line in [
            "fanpcap_member_buckets{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\",pid=\"4711\",program=\"tcpdump\",socket=\"11\"} 2048\n",
            "fanpcap_group_gone_members_total{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\"} 1\n",
            "fanpcap_group_gone_packets_total{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\",fate=\"inherited\"} 30\n",
            "fanpcap_group_members{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\"} 4\n",
            "fanpcap_group_members_with_counters{device=\"eth0\",ifindex=\"2\",group=\"7\",mode=\"hash+defrag\"} 3\n",
            "fanpcap_group_members{device=\"eth0\",ifindex=\"2\",group=\"42\",mode=\"qm\"} 1\n",
            "fanpcap_device_dropped_packets_total{device=\"eth0\",ifindex=\"2\",cause=\"missed\"} 5\n",
            "fanpcap_device_received_bytes_total{device=\"eth0\",ifindex=\"2\"} 30815000000\n",
            "fanpcap_device_packet_sockets{device=\"eth0\",ifindex=\"2\"} 6\n",
        ] {
            assert!(text.contains(line), "{line} in:\n{text}");
        }
    }

    #[test]
    fn a_stalled_member_has_no_backlog_and_one_that_waits_has_none_waiting() {
        let backlog = |snapshot: &Snapshot| {
            let text = exposition::text(&of(snapshot));
            let mut lines = text.lines();
            let line = lines.find(|line| {
                line.starts_with("fanpcap_member_backlog_packets{") && line.contains("\"4712\"")
            });
            line.and_then(|line| Some(line.rsplit_once(' ')?.1.to_owned()))
        };
        let mut snapshot = fixture::after();
        assert_eq!(backlog(&snapshot), None);
        if let Some(counts) = &mut snapshot.sockets[1].counts {
            counts.waits = true;
        }
        assert_eq!(backlog(&snapshot).as_deref(), Some("0"));
    }

    #[test]
    fn a_device_named_any_is_not_all_devices() {
        let mut snapshot = fixture::look(1);
        snapshot.devices = [0, 5]
            .map(|index| fixture::device(index, "any", [1; 4]))
            .into();
        let read = fixture::counts(1, 1, 0);
        snapshot.sockets = vec![fixture::member(1, 1, read), fixture::member(2, 1, read)];
        snapshot.sockets[0].ifindex = 0;
        snapshot.sockets[1].ifindex = 5;
        let text = exposition::text(&of(&snapshot));
        let series: Vec<&str> = text
            .lines()
            .filter_map(|line| Some(line.rsplit_once(' ')?.0))
            .filter(|series| !series.starts_with('#'))
            .collect();
        let different: std::collections::BTreeSet<&str> = series.iter().copied().collect();
        assert_eq!(series.len(), different.len(), "{text}");
        assert_eq!(text.matches("fanpcap_group_members{").count(), 2, "{text}");
    }

    /// The manual page names each metric and no other.
    #[test]
    fn the_manual_has_every_metric() {
        let page = include_str!("../../../../docs/man/fanpcap-metrics.in");
        let families = of(&fixture::after());
        for family in &families {
            let entry = format!("\n.B {}\n", family.name);
            assert!(page.contains(&entry), "{}", family.name);
        }
        assert_eq!(page.matches("\n.B fanpcap_").count(), families.len());
    }

    #[test]
    fn what_is_unknown_has_no_sample() {
        let text = exposition::text(&of(&fixture::after()));
        // A member that never counted, and a member of another library.
        assert!(!text.contains("pid=\"4714\"") && !text.contains("pid=\"5000\""));
        assert_eq!(exposition::text(&of(&fixture::look(1))), "");
    }
}
