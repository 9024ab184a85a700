//! Computes rates, shares and skew from two snapshots.

use std::collections::BTreeMap;

use fanpcap_linux::netlink::link::Counters;
use fanpcap_snapshot::{Offered, Snapshot, rounded, seconds};

use super::view::{AwaitedDevice, Device, Group, Member, SCHEMA, View};
use member::{History, Share};

mod member;

/// The last snapshot, and the members' earlier rates. The next view is computed from both.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    before: Option<Snapshot>,
    history: History,
}

impl Rates {
    /// The view of the interval since the last snapshot. The first view has totals but no rates.
    pub(crate) fn next(&mut self, after: Snapshot) -> View {
        let view = view(self.before.as_ref(), &after, &mut self.history);
        self.before = Some(after);
        view
    }
}

fn view(before: Option<&Snapshot>, after: &Snapshot, history: &mut History) -> View {
    let earlier = before.filter(|before| before.at_ns < after.at_ns);
    let seconds = earlier.map(|before| seconds(before.at_ns, after.at_ns));
    history.begin(earlier, after);
    let mut devices = Vec::new();
    for device in &after.devices {
        let of_before = |before: &Snapshot| {
            let mut devices = before.devices.iter();
            let same = devices.find(|other| other.ifindex == device.ifindex)?;
            same.counters
        };
        let before = earlier.and_then(of_before);
        let passed = passed(before, device.counters, seconds);
        let shown = device.shown_ifindex();
        let mut device = with_sockets(figures(device, before, seconds), after, history);
        if device.ifindex == u32::MAX {
            device.awaited_devices = awaited_devices(after);
            if let [only] = &device.awaited_devices[..] {
                device.awaited_device = Some(only.device.clone());
            }
        }
        let groups = device.groups.iter_mut();
        groups.for_each(|group| mark_late(group, passed));
        device.ifindex = shown;
        devices.push(device);
    }
    View {
        schema: SCHEMA,
        time_unix_seconds: rounded(after.unix_seconds),
        interval_seconds: seconds.map(rounded),
        host: after.host.clone(),
        network_namespace: after.netns,
        network_namespace_name: after.netns_name.clone(),
        devices,
    }
}

fn awaited_devices(after: &Snapshot) -> Vec<AwaitedDevice> {
    let of = |(device, &waiting_members_total): (&String, &usize)| AwaitedDevice {
        device: device.clone(),
        waiting_members_total,
    };
    after.waiting.iter().map(of).collect()
}

/// The numbers of a device.
fn figures(
    device: &fanpcap_snapshot::Device,
    before: Option<Counters>,
    seconds: Option<f64>,
) -> Device {
    // A poller does not count bytes, nor errors of the device.
    let is_whole = device.poller.is_none();
    let now = device.counters;
    let whole = |count: Option<u64>| count.filter(|_| is_whole);
    let total = |count: fn(&Counters) -> u64| now.as_ref().map(count);
    let per_second =
        |count: fn(&Counters) -> u64| rate(before.as_ref().map(count), total(count), seconds);
    let lost = |counters: &Counters| counters.rx_dropped + counters.rx_missed;
    Device {
        device: device.name.clone(),
        ifindex: device.ifindex,
        awaited_device: None,
        awaited_devices: Vec::new(),
        received_packets_total: total(|counters| counters.rx_packets),
        received_packets_per_second: per_second(|counters| counters.rx_packets),
        received_bytes_total: whole(total(|counters| counters.rx_bytes)),
        received_bits_per_second: per_second(|counters| counters.rx_bytes)
            .filter(|_| is_whole)
            .map(|bytes| bytes * 8.0),
        lost_packets_total: total(lost),
        lost_packets_per_second: per_second(lost),
        dropped_packets_total: total(|counters| counters.rx_dropped),
        missed_packets_total: whole(total(|counters| counters.rx_missed)),
        fifo_errors_total: whole(total(|counters| counters.rx_fifo)),
        receive_errors_total: whole(total(|counters| counters.rx_errors)),
        stolen_from_host: device.stolen_from_host,
        groups: Vec::new(),
        sockets: Vec::new(),
    }
}

/// Adds a device's sockets, by group.
fn with_sockets(mut device: Device, after: &Snapshot, history: &mut History) -> Device {
    let mut groups: BTreeMap<u16, (String, Vec<(Member, Share)>)> = BTreeMap::new();
    let mut placeholders: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    let mut founders: BTreeMap<u16, Member> = BTreeMap::new();
    let ifindex = device.ifindex;
    for socket in after
        .sockets
        .iter()
        .filter(|socket| socket.ifindex == ifindex)
    {
        let member = history.member(socket);
        if let Some(founded) = &socket.founds {
            let entry = groups.entry(founded.number);
            entry.or_insert_with(|| (founded.mode.clone(), Vec::new()));
            founders.insert(founded.number, member.0);
            continue;
        }
        let Some(group) = &socket.group else {
            device.sockets.push(member.0);
            continue;
        };
        if socket.is_placeholder {
            let rings = placeholders.entry(group.number).or_default();
            rings.push(socket.ring_bytes.unwrap_or(0));
            continue;
        }
        let entry = groups.entry(group.number);
        let (_, members) = entry.or_insert_with(|| (group.mode.clone(), Vec::new()));
        members.push(member);
    }
    let groups = groups.into_iter().map(|(number, (mode, members))| {
        let rings = placeholders.remove(&number).unwrap_or_default();
        let founder = founders.remove(&number);
        Group {
            placeholders_total: rings.len(),
            placeholders_ring_bytes: rings.iter().sum(),
            ..with_table(group(number, mode, members, founder), ifindex, after)
        }
    });
    device.groups = groups.collect();
    device
}

/// Adds the members that are gone and the last change, from the group's table.
fn with_table(group: Group, ifindex: u32, after: &Snapshot) -> Group {
    let Some(view) = after.tables.get(&(ifindex, group.group)) else {
        return group;
    };
    let gone = view.gone;
    Group {
        gone_members_total: Some(gone.members),
        gone_received_packets_total: Some(gone.received),
        gone_ring_full_drops_total: Some(gone.dropped),
        gone_inherited_packets_total: Some(gone.inherited),
        gone_unread_packets_total: Some(gone.unread),
        takeovers_total: Some(view.takeovers),
        ledger: view.ledger.map(|it| Offered::of(&it, after.at_ns)),
        steered_nowhere_packets_total: view.nowhere,
        last_moved_buckets: view.moved.map(|moved| moved.buckets),
        last_moved_seconds_ago: view
            .moved
            .map(|moved| rounded(seconds(moved.at_ns, after.at_ns))),
        ..group
    }
}

/// Sums, shares and skew of a group. The founder gets no packets, but it has counters of the
/// group's steering program.
fn group(
    group: u16,
    mode: String,
    members: Vec<(Member, Share)>,
    founder: Option<Member>,
) -> Group {
    let shares: Vec<f64> = members.iter().filter_map(|(_, share)| *share).collect();
    let total: f64 = shares.iter().sum();
    let with_share = |(member, share): (Member, Share)| Member {
        share_percent: share
            .filter(|_| total > 0.0)
            .map(|share| rounded(100.0 * share / total)),
        ..member
    };
    let mut members: Vec<Member> = members.into_iter().map(with_share).collect();
    mark_left(&mut members);
    Group {
        group,
        mode,
        members_total: members.len(),
        members_with_rates: shares.len(),
        members_with_rough_rates: members.iter().filter(|it| it.rate_is_rough).count(),
        members_unread: members.iter().filter(|it| it.is_unread).count(),
        members_stopped: members.iter().filter(|it| it.is_stopped).count(),
        packets_per_second: sum(&members, |member| member.packets_per_second).map(rounded),
        received_packets_total: sum(&members, |member| member.received_packets_total),
        ring_full_drops_total: sum(&members, |member| member.ring_full_drops_total),
        ring_full_drops_per_second: sum(&members, |member| member.ring_full_drops_per_second)
            .map(rounded),
        backlog_packets: sum(&members, |member| member.backlog_packets),
        skew: skew(&shares),
        program_counters: program_counters(members.iter().chain(&founder)),
        program_counters_age_seconds: program_counters_age(members.iter().chain(&founder)),
        founder_pid: founder.and_then(|founder| founder.pid),
        members,
        ..Group::default()
    }
}

/// Packets per second that a device received and sent.
fn passed(before: Option<Counters>, now: Option<Counters>, seconds: Option<f64>) -> Option<f64> {
    let both = |it: Counters| it.rx_packets + it.tx_packets;
    rate(before.map(both), now.map(both), seconds)
}

/// Marks the rates of a group on packet sockets that got clearly more packets than its device had
/// in the interval. The other packets came before the interval, and waited in a block of the ring
/// that was not full: the member counts them when the kernel hands over the block.
fn mark_late(group: &mut Group, passed: Option<f64>) {
    let got = group.packets_per_second.filter(|_| group.ledger.is_none());
    let (Some(passed), Some(got)) = (passed, got) else {
        return;
    };
    if got <= MUCH * passed {
        return;
    }
    let members = group.members.iter_mut();
    for member in members.filter(|it| it.packets_per_second > Some(0.0)) {
        member.rate_is_rough = true;
    }
    let rough = group.members.iter().filter(|it| it.rate_is_rough);
    group.members_with_rough_rates = rough.count();
}

/// The rates of a group and of its device may differ by this factor, because members read their
/// counters at other times than those of the snapshots.
const MUCH: f64 = 1.5;

/// Marks a member whose application has not looked for packets for [`LEFT_SECONDS`], while other
/// members got packets. The time is long because an application without packets may wait in
/// select(2), which its page does not show. `History::member` marks a member that has never looked
/// for packets, after a shorter time.
fn mark_left(members: &mut [Member]) {
    let is_given = |member: &Member| member.packets_per_second > Some(0.0);
    let given = members.iter().filter(|member| is_given(member)).count();
    for member in members {
        let others = given - usize::from(is_given(member));
        // A member without buckets gets nothing, so it can't lose packets.
        let is_given = others > 0 && member.buckets != Some(0);
        member.is_unread |= is_given && member.unread_seconds >= Some(LEFT_SECONDS);
    }
}

/// If the application of a member has read packets before, the member is marked as unread after
/// this many seconds in which the application has not looked for packets.
const LEFT_SECONDS: f64 = 30.0;

/// The highest rate divided by the mean; `None` for a single rate, or if all rates are 0.
fn skew(rates: &[f64]) -> Option<f64> {
    let total: f64 = rates.iter().sum();
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let number = u32::try_from(rates.len()).ok()?;
    (number > 1 && total > 0.0).then(|| rounded(highest * f64::from(number) / total))
}

/// The sum of each counter over the members that publish counters.
fn program_counters<'a>(members: impl Iterator<Item = &'a Member>) -> Option<Vec<i64>> {
    let known = members.filter_map(|member| member.program_counters.as_deref());
    known.fold(None, |sums, counters| {
        let mut sums = sums.unwrap_or_default();
        sums.resize(counters.len().max(sums.len()), 0);
        for (sum, counter) in sums.iter_mut().zip(counters) {
            *sum = sum.wrapping_add(*counter);
        }
        Some(sums)
    })
}

/// Age of the oldest counters in the sum of the program counters.
fn program_counters_age<'a>(members: impl Iterator<Item = &'a Member>) -> Option<f64> {
    let ages = members.filter_map(|member| member.program_counters_age_seconds);
    ages.reduce(f64::max)
}

/// The sum of the known numbers; `None` if no number is known.
fn sum<T: std::iter::Sum>(members: &[Member], figure: fn(&Member) -> Option<T>) -> Option<T> {
    let mut known = members.iter().filter_map(figure).peekable();
    known.peek()?;
    Some(known.sum())
}

/// The rate of a counter. If the counter decreased, it was reset, and the rate is unknown.
#[allow(
    clippy::cast_precision_loss,
    reason = "a rate of 2^53 packets per second is out of reach"
)]
fn rate(before: Option<u64>, after: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    let step = after?.checked_sub(before?)?;
    let seconds = seconds.filter(|&seconds| seconds > 0.0)?;
    Some(rounded(step as f64 / seconds))
}

#[cfg(test)]
mod tests;
