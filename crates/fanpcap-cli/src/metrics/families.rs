//! Which metrics there are, and their samples of a snapshot. A figure that is not known has no sample.

use std::collections::BTreeMap;

use fanpcap_linux::link::Counters;

use super::exposition::{Family, Kind, Label, Number};
use crate::snapshot::{Counts, Device, Snapshot, Socket};

/// A sample's labels and number.
type Sample = (Vec<Label>, Number);

/// A figure of a device, with the cause that tells it from others of its name.
type Figure<'c> = (Option<&'c str>, fn(&Counters) -> u64);

/// All metrics of a snapshot.
pub(crate) fn of(snapshot: &Snapshot) -> Vec<Family> {
    let (members, groups, devices) = (members(snapshot), groups(snapshot), devices(snapshot));
    members.into_iter().chain(groups).chain(devices).collect()
}

fn members(snapshot: &Snapshot) -> [Family; 5] {
    let samples = |figure: &dyn Fn(&Counts) -> Option<Number>, cause: Option<&str>| {
        let sample = |socket: &Socket| {
            let number = figure(socket.counts.as_ref()?)?;
            let mut labels = member_labels(snapshot, socket)?;
            labels.extend(cause.map(|cause| ("cause", cause.to_owned())));
            Some((labels, number))
        };
        snapshot.sockets.iter().filter_map(sample).collect()
    };
    let age = |counts: &Counts| {
        #[allow(
            clippy::cast_precision_loss,
            reason = "2^53 nanoseconds are a hundred days, to a nanosecond"
        )]
        let seconds = snapshot.at_ns.saturating_sub(counts.read_ns) as f64 / 1e9;
        Some(Number::Seconds(seconds))
    };
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
            "Packets that waited in the member's ring when it read its counters.",
            samples(&|counts| counts.backlog().map(Number::Whole), None),
        ),
        gauge(
            "fanpcap_member_counters_age_seconds",
            "Time since the member read its counters; live ones are below a second.",
            samples(&age, None),
        ),
    ]
}

/// What tells a member from others; a process may have several, so that its socket is among it. None for sockets
/// without a group or a process.
fn member_labels(snapshot: &Snapshot, socket: &Socket) -> Option<Vec<Label>> {
    let (group, process) = (socket.group.as_ref()?, socket.process.as_ref()?);
    Some(vec![
        ("device", device_name(snapshot, socket.ifindex)),
        ("group", group.number.to_string()),
        ("mode", group.mode.clone()),
        ("pid", process.pid.to_string()),
        ("program", process.program.clone()),
        ("socket", socket.inode.to_string()),
    ])
}

fn device_name(snapshot: &Snapshot, ifindex: u32) -> String {
    let mut devices = snapshot.devices.iter();
    let device = devices.find(|device| device.ifindex == ifindex);
    device.map_or_else(String::new, |device| device.name.clone())
}

fn groups(snapshot: &Snapshot) -> [Family; 2] {
    // All members, and those with counters.
    let mut groups: BTreeMap<(String, u16, &str), (u64, u64)> = BTreeMap::new();
    for socket in &snapshot.sockets {
        if let Some(group) = &socket.group {
            let device = device_name(snapshot, socket.ifindex);
            let entry = groups.entry((device, group.number, &group.mode));
            let (all, counted) = entry.or_default();
            *all += 1;
            *counted += u64::from(socket.counts.is_some());
        }
    }
    let samples = |number: fn(&(u64, u64)) -> u64| -> Vec<Sample> {
        let sample = |(group, numbers): (&(String, u16, &str), _)| {
            let (device, group, mode) = group;
            let labels = vec![
                ("device", device.clone()),
                ("group", group.to_string()),
                ("mode", (*mode).to_owned()),
            ];
            (labels, Number::Whole(number(numbers)))
        };
        groups.iter().map(sample).collect()
    };
    [
        gauge(
            "fanpcap_group_members",
            "Packet sockets in the fan-out group, of any program.",
            samples(|numbers| numbers.0),
        ),
        gauge(
            "fanpcap_group_members_with_counters",
            "Members of the group that tell their counters: programs on this library.",
            samples(|numbers| numbers.1),
        ),
    ]
}

fn devices(snapshot: &Snapshot) -> [Family; 5] {
    let each = |figures: &[Figure<'_>]| -> Vec<Sample> {
        let mut samples = Vec::new();
        for device in &snapshot.devices {
            for (cause, figure) in figures {
                let Some(counters) = &device.counters else {
                    continue;
                };
                let mut labels = vec![("device", device.name.clone())];
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
        let labels = vec![("device", device.name.clone())];
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
        let labels = "device=\"eth0\",group=\"7\",mode=\"hash+defrag\",pid=\"4713\",\
                      program=\"tcpdump\",socket=\"13\"";
        for (name, more, number) in [
            ("received_packets_total", "", "800000"),
            ("dropped_packets_total", ",cause=\"ring_full\"", "1234"),
            ("taken_packets_total", "", "798759"),
            ("backlog_packets", "", "7"),
            ("counters_age_seconds", "", "0.050"),
        ] {
            let line = format!("\nfanpcap_member_{name}{{{labels}{more}}} {number}\n");
            assert!(text.contains(&line), "{line} in:\n{text}");
        }
        for line in [
            "fanpcap_group_members{device=\"eth0\",group=\"7\",mode=\"hash+defrag\"} 4\n",
            "fanpcap_group_members_with_counters{device=\"eth0\",group=\"7\",mode=\"hash+defrag\"} 3\n",
            "fanpcap_group_members{device=\"eth0\",group=\"42\",mode=\"qm\"} 1\n",
            "fanpcap_device_dropped_packets_total{device=\"eth0\",cause=\"missed\"} 5\n",
            "fanpcap_device_received_bytes_total{device=\"eth0\"} 30815000000\n",
            "fanpcap_device_packet_sockets{device=\"eth0\"} 6\n",
        ] {
            assert!(text.contains(line), "{line} in:\n{text}");
        }
    }

    #[test]
    fn what_is_unknown_has_no_sample() {
        let text = exposition::text(&of(&fixture::after()));
        // Never counted, and foreign.
        assert!(!text.contains("pid=\"4714\"") && !text.contains("pid=\"5000\""));
        assert_eq!(exposition::text(&of(&fixture::look(1))), "");
    }
}
