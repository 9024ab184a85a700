//! The metrics and their samples from a snapshot. An unknown number has no sample.

use fanpcap_group::view::Place;
use fanpcap_linux::netlink::link::Counters;
use fanpcap_snapshot::{Counts, Device, Snapshot, Socket};
use fanpcap_terminal::exposition::{Family, Kind, Label, Number};

mod groups;

/// A sample's labels and number.
type Sample = (Vec<Label>, Number);

/// The value of the label `cause` or `fate`, or `None` if the metric has no such label; and a
/// function that returns the sample's number.
type Figure<Of> = (Option<&'static str>, fn(&Of) -> u64);

/// The numbers that the functions `figures` give for `of`, each with its label's value.
fn numbers<Of>(figures: &[Figure<Of>], of: &Of) -> Vec<(Option<&'static str>, Number)> {
    let number = |(label, figure): &Figure<Of>| (*label, Number::Whole(figure(of)));
    figures.iter().map(number).collect()
}

/// All metrics of a snapshot.
pub(crate) fn of(snapshot: &Snapshot) -> Vec<Family> {
    let members = members(snapshot)
        .into_iter()
        .chain(steered_members(snapshot));
    let with_groups = members.chain(groups::of(snapshot));
    let with_devices = with_groups.chain(devices(snapshot));
    with_devices.chain(pollers(snapshot)).collect()
}

fn members(snapshot: &Snapshot) -> [Family; 6] {
    let of = |figure: &dyn Fn(&Socket) -> Option<Number>| of_members(snapshot, figure);
    let samples =
        |figure: &dyn Fn(&Counts) -> Option<Number>| of(&|socket| figure(socket.counts.as_ref()?));
    let mut dropped = samples(&|counts| Some(Number::Whole(counts.dropped)));
    for (labels, _) in &mut dropped {
        labels.push(("cause", "ring_full".to_owned()));
    }
    let age = |counts: &Counts| Some(Number::Seconds(counts.age(snapshot.at_ns)));
    let backlog = |counts: &Counts| counts.backlog(snapshot.at_ns).map(Number::Whole);
    [
        counter(
            "fanpcap_member_received_packets_total",
            "Packets that the kernel gave to the member, dropped ones included.",
            samples(&|counts| Some(Number::Whole(counts.received))),
        ),
        counter(
            "fanpcap_member_dropped_packets_total",
            "Packets that the kernel gave to the member and that were lost.",
            dropped,
        ),
        counter(
            "fanpcap_member_taken_packets_total",
            "Packets that the member has taken from its ring.",
            samples(&|counts| counts.taken.map(Number::Whole)),
        ),
        gauge(
            "fanpcap_member_backlog_packets",
            "Packets that waited in the member's ring when the member read its counters; 0 while it waits at an empty ring. \
             No sample if the counters are older than 2 seconds.",
            samples(&backlog),
        ),
        gauge(
            "fanpcap_member_counters_age_seconds",
            "Time since the member read its counters. It reads them ten times a second while it takes packets, but not \
             while it waits at an empty ring.",
            samples(&age),
        ),
        gauge(
            "fanpcap_member_unread_seconds",
            "Time since the application looked for packets, or since the join if it never has; 0 while it waits for packets. A member that \
             is not read loses its share, unless it is a member of a steered group without buckets.",
            of(&|socket| socket.unread_seconds.map(Number::Seconds)),
        ),
    ]
}

/// Metrics that only members of groups with a steering program have: the program's counters, slots
/// and classes.
fn steered_members(snapshot: &Snapshot) -> [Family; 5] {
    let of = |figure: &dyn Fn(&Socket) -> Option<Number>| of_members(snapshot, figure);
    let place = |figure: fn(&Place) -> u64| {
        of(&|socket| socket.place.as_ref().map(|it| Number::Whole(figure(it))))
    };
    [
        gauge(
            "fanpcap_member_program_counter",
            "Counts of the group's steering program for the member's packets, by the counter's number.",
            program_counters(snapshot),
        ),
        gauge(
            "fanpcap_member_program_counters_age_seconds",
            "Time since the member read the steering program's counters. It reads them ten times a second while the application is in a read, \
             even if no packet comes; 0 if the program has no counters.",
            of(&|socket| {
                let age = socket.program_counters_age(snapshot.at_ns);
                age.map(Number::Seconds)
            }),
        ),
        gauge(
            "fanpcap_member_slot",
            "The member's slot in the table of a group with a steering program.",
            place(|place| place.slot.into()),
        ),
        gauge(
            "fanpcap_member_buckets",
            "Buckets that the member owns, of 4096; 0 if the member was drained.",
            place(|place| place.buckets as u64),
        ),
        gauge(
            "fanpcap_member_class",
            "The member's class in a group with a steering program; 0: the default class.",
            of(&|socket| socket.class.map(|class| Number::Whole(class.into()))),
        ),
    ]
}

/// A sample for each member whose number is known.
fn of_members(snapshot: &Snapshot, figure: impl Fn(&Socket) -> Option<Number>) -> Vec<Sample> {
    let of_member = |socket: &Socket| {
        let number = figure(socket)?;
        Some((member_labels(snapshot, socket)?, number))
    };
    snapshot.sockets.iter().filter_map(of_member).collect()
}

/// A sample for each counter of each member's steering program.
fn program_counters(snapshot: &Snapshot) -> Vec<Sample> {
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
    samples.flatten().collect()
}

/// Labels that identify a member. They include the socket, because a process may have several
/// members. `None` for sockets without a group or a process. A founder has the labels of its group,
/// because it has counters of the group's steering program.
fn member_labels(snapshot: &Snapshot, socket: &Socket) -> Option<Vec<Label>> {
    let group = socket.of_group()?;
    let process = socket.process.as_ref()?;
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

/// Labels that identify a device. They include the index, because a device may have the name `any`,
/// which also stands for all devices.
fn device_labels(snapshot: &Snapshot, ifindex: u32) -> Vec<Label> {
    let mut devices = snapshot.devices.iter();
    let device = devices.find(|device| device.ifindex == ifindex);
    let name = device.map_or_else(String::new, |device| device.name.clone());
    let ifindex = device.map_or(ifindex, Device::shown_ifindex);
    vec![("device", name), ("ifindex", ifindex.to_string())]
}

fn devices(snapshot: &Snapshot) -> [Family; 7] {
    let each = |figures: &[Figure<Counters>]| -> Vec<Sample> {
        let of_device = |device: &Device| {
            let counters = device.counters.as_ref()?;
            let sample = |(cause, number): (Option<&str>, Number)| {
                let mut labels = device_labels(snapshot, device.ifindex);
                labels.extend(cause.map(|cause| ("cause", cause.to_owned())));
                (labels, number)
            };
            Some(numbers(figures, counters).into_iter().map(sample).collect())
        };
        let samples = of_the_machine(snapshot).filter_map(of_device);
        samples.collect::<Vec<Vec<Sample>>>().concat()
    };
    let of = |number: &dyn Fn(&Device) -> u64| -> Vec<Sample> {
        let labels = |device: &Device| device_labels(snapshot, device.ifindex);
        let sample = |device| (labels(device), Number::Whole(number(device)));
        of_the_machine(snapshot).map(sample).collect()
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
            of(&|device| {
                let sockets = snapshot.sockets.iter();
                sockets.filter(|it| it.ifindex == device.ifindex).count() as u64
            }),
        ),
        gauge(
            "fanpcap_device_waiting_members",
            "Members that wait until this device, which is gone, is back (gone = wait, fanpcap run --restart). \
             No sample if no member waits.",
            waiting(snapshot),
        ),
        gauge(
            "fanpcap_device_stolen_from_host",
            "1 while a member on the XDP engine steals the device's packets from the host (steal = yes), and the host or \
             a container has begun to use the device; otherwise 0.",
            of(&|device| device.stolen_from_host.is_some().into()),
        ),
    ]
}

/// The devices, without those that stand for the groups of a poller.
fn of_the_machine(snapshot: &Snapshot) -> impl Iterator<Item = &Device> {
    snapshot.devices.iter().filter(|it| it.poller.is_none())
}

/// The packets of pollers that show groups.
fn pollers(snapshot: &Snapshot) -> [Family; 2] {
    let each = |figure: fn(&Counters) -> u64| -> Vec<Sample> {
        let sample = |device: &Device| {
            let counters = device.counters.filter(|_| device.poller.is_some())?;
            let labels = device_labels(snapshot, device.ifindex);
            Some((labels, Number::Whole(figure(&counters))))
        };
        snapshot.devices.iter().filter_map(sample).collect()
    };
    [
        counter(
            "fanpcap_poller_received_packets_total",
            "Packets that came to the device's poller, dropped ones included.",
            each(|counters| counters.rx_packets),
        ),
        counter(
            "fanpcap_poller_dropped_packets_total",
            "Packets that were lost before the device's poller, because it was late.",
            each(|counters| counters.rx_dropped),
        ),
    ]
}

/// The number of members that wait for each device that is gone. Its index is the one that the
/// kernel gives to sockets of a removed device.
fn waiting(snapshot: &Snapshot) -> Vec<Sample> {
    let sample = |(device, &count): (&String, &usize)| {
        let labels = vec![
            ("device", device.clone()),
            ("ifindex", u32::MAX.to_string()),
        ];
        (labels, Number::Whole(count as u64))
    };
    snapshot.waiting.iter().map(sample).collect()
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
mod tests;
