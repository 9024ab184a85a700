//! From two snapshots to rates, shares and skew.

use std::collections::BTreeMap;

use fanpcap_linux::link::Counters;

use super::view::{Device, Group, Member, SCHEMA, View};
use crate::snapshot::{self, Counts, Snapshot, Socket};

/// Counters older than this tell nothing of now, seconds. Members refresh theirs ten times a second.
pub(crate) const STALE_SECONDS: f64 = 2.0;

/// What tells a socket from all others, also from a later one with its inode.
type Key = (u32, Option<u16>, u32, Option<u32>);

/// What changed from `before` to `after`. Without `before` there are totals, and no rates.
pub(crate) fn view(before: Option<&Snapshot>, after: &Snapshot) -> View {
    let earlier = before.filter(|before| before.at_ns < after.at_ns);
    let seconds = earlier.map(|before| seconds(before.at_ns, after.at_ns));
    let earlier_counts: BTreeMap<Key, Counts> = earlier
        .into_iter()
        .flat_map(|before| &before.sockets)
        .filter_map(|socket| Some((key(socket), socket.counts?)))
        .collect();
    let device = |device: &snapshot::Device| {
        let of_before = |before: &Snapshot| {
            let mut devices = before.devices.iter();
            let same = devices.find(|other| other.ifindex == device.ifindex)?;
            same.counters
        };
        let figures = figures(device, earlier.and_then(of_before), seconds);
        with_sockets(figures, after, &earlier_counts)
    };
    View {
        schema: SCHEMA,
        time_unix_seconds: rounded(after.unix_seconds),
        interval_seconds: seconds.map(rounded),
        host: after.host.clone(),
        network_namespace: after.netns,
        network_namespace_name: after.netns_name.clone(),
        devices: after.devices.iter().map(device).collect(),
    }
}

/// A device's own figures.
fn figures(device: &snapshot::Device, before: Option<Counters>, seconds: Option<f64>) -> Device {
    let now = device.counters;
    let total = |count: fn(&Counters) -> u64| now.as_ref().map(count);
    let per_second =
        |count: fn(&Counters) -> u64| rate(before.as_ref().map(count), total(count), seconds);
    let lost = |counters: &Counters| counters.rx_dropped + counters.rx_missed;
    Device {
        device: device.name.clone(),
        ifindex: device.ifindex,
        received_packets_total: total(|counters| counters.rx_packets),
        received_packets_per_second: per_second(|counters| counters.rx_packets),
        received_bytes_total: total(|counters| counters.rx_bytes),
        received_bits_per_second: per_second(|counters| counters.rx_bytes).map(|bytes| bytes * 8.0),
        lost_packets_total: total(lost),
        lost_packets_per_second: per_second(lost),
        dropped_packets_total: total(|counters| counters.rx_dropped),
        missed_packets_total: total(|counters| counters.rx_missed),
        fifo_errors_total: total(|counters| counters.rx_fifo),
        receive_errors_total: total(|counters| counters.rx_errors),
        groups: Vec::new(),
        sockets: Vec::new(),
    }
}

/// Adds a device's sockets, by group.
fn with_sockets(mut device: Device, after: &Snapshot, earlier: &BTreeMap<Key, Counts>) -> Device {
    let mut groups: BTreeMap<u16, (String, Vec<Member>)> = BTreeMap::new();
    let on_device = |socket: &&Socket| socket.ifindex == device.ifindex;
    for socket in after.sockets.iter().filter(on_device) {
        let member = member(socket, earlier.get(&key(socket)), after.at_ns);
        match &socket.group {
            None => device.sockets.push(member),
            Some(group) => {
                let entry = groups.entry(group.number);
                let (_, members) = entry.or_insert_with(|| (group.mode.clone(), Vec::new()));
                members.push(member);
            }
        }
    }
    device.groups = groups
        .into_iter()
        .map(|(number, (mode, members))| group(number, mode, members))
        .collect();
    device
}

/// Sums, shares and skew of a group.
fn group(group: u16, mode: String, mut members: Vec<Member>) -> Group {
    let rates: Vec<f64> = members
        .iter()
        .filter_map(|member| member.packets_per_second)
        .collect();
    let total: f64 = rates.iter().sum();
    for member in &mut members {
        member.share_percent = member
            .packets_per_second
            .filter(|_| total > 0.0)
            .map(|rate| rounded(100.0 * rate / total));
    }
    Group {
        group,
        mode,
        members_with_rates: rates.len(),
        packets_per_second: sum(&members, |member| member.packets_per_second).map(rounded),
        received_packets_total: sum(&members, |member| member.received_packets_total),
        ring_full_drops_total: sum(&members, |member| member.ring_full_drops_total),
        ring_full_drops_per_second: sum(&members, |member| member.ring_full_drops_per_second)
            .map(rounded),
        backlog_packets: sum(&members, |member| member.backlog_packets),
        skew: skew(&rates),
        members,
    }
}

/// The highest rate over the mean. One rate, or none above zero, has no skew.
fn skew(rates: &[f64]) -> Option<f64> {
    let total: f64 = rates.iter().sum();
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let number = u32::try_from(rates.len()).ok()?;
    (number > 1 && total > 0.0).then(|| rounded(highest * f64::from(number) / total))
}

/// The sum of what is known; none when nothing is.
fn sum<T: std::iter::Sum>(members: &[Member], figure: fn(&Member) -> Option<T>) -> Option<T> {
    let mut known = members.iter().filter_map(figure).peekable();
    known.peek()?;
    Some(known.sum())
}

fn member(socket: &Socket, before: Option<&Counts>, at_ns: u64) -> Member {
    let counts = socket.counts;
    let age = counts.map(|counts| seconds(counts.read_ns, at_ns));
    let stale = socket.has_page && age.is_none_or(|age| age > STALE_SECONDS);
    // Rates are over the time between the two readings, which is not quite that between two looks.
    let pair = before.zip(counts).filter(|_| !stale);
    let per_second = |count: fn(&Counts) -> u64| {
        let (before, after) = pair.as_ref()?;
        let seconds = seconds(before.read_ns, after.read_ns);
        rate(Some(count(before)), Some(count(after)), Some(seconds))
    };
    let process = socket.process.as_ref();
    Member {
        socket: socket.inode,
        pid: process.map(|process| process.pid),
        program: process.map(|process| process.program.clone()),
        ours: socket.has_page,
        cpu_affinity: process.and_then(|process| process.affinity.clone()),
        last_cpu: process.and_then(|process| process.last_cpu),
        protocol: socket.protocol,
        ring_bytes: socket.ring_bytes,
        counters_age_seconds: age.map(rounded),
        stale,
        received_packets_total: counts.map(|counts| counts.received),
        packets_per_second: per_second(|counts| counts.received),
        share_percent: None,
        ring_full_drops_total: counts.map(|counts| counts.dropped),
        ring_full_drops_per_second: per_second(|counts| counts.dropped),
        taken_packets_total: counts.and_then(|counts| counts.taken),
        backlog_packets: counts
            .filter(|_| !stale)
            .and_then(|counts| counts.backlog()),
    }
}

fn key(socket: &Socket) -> Key {
    let group = socket.group.as_ref().map(|group| group.number);
    let pid = socket.process.as_ref().map(|process| process.pid);
    (socket.ifindex, group, socket.inode, pid)
}

/// A counter that went back was reset: what it counted before is unknown, and so is the rate.
#[allow(
    clippy::cast_precision_loss,
    reason = "a rate of 2^53 packets per second is out of reach"
)]
fn rate(before: Option<u64>, after: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    let step = after?.checked_sub(before?)?;
    let seconds = seconds.filter(|&seconds| seconds > 0.0)?;
    Some(rounded(step as f64 / seconds))
}

/// Seconds between two times in nanoseconds; 0 when the second is not later.
#[allow(
    clippy::cast_precision_loss,
    reason = "2^53 nanoseconds are a hundred days, to a nanosecond"
)]
fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

/// To a thousandth.
fn rounded(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests;
