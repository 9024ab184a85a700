//! The metrics of groups: their members, their tables, and the packets that reached them.

use std::collections::BTreeMap;

use fanpcap_group::view::{Ledger, View};
use fanpcap_snapshot::{Snapshot, Socket, seconds};
use fanpcap_terminal::exposition::{Family, Number};

use super::{Figure, Sample, counter, device_labels, gauge, numbers};

/// All metrics of groups.
pub(super) fn of(snapshot: &Snapshot) -> impl Iterator<Item = Family> {
    let groups = groups(snapshot).into_iter().chain(tables(snapshot));
    groups.chain(ledgers(snapshot))
}

fn groups(snapshot: &Snapshot) -> [Family; 4] {
    let mut groups: BTreeMap<(u32, u16), OfGroup<'_>> = BTreeMap::new();
    for socket in &snapshot.sockets {
        if let Some(group) = socket.of_group() {
            let entry = groups.entry((socket.ifindex, group.number));
            let of_group = entry.or_default();
            let is_founder = socket.group.is_none();
            if !is_founder || of_group.mode.is_empty() {
                of_group.mode = &group.mode;
            }
            if is_founder {
                continue;
            }
            if socket.is_placeholder {
                of_group.placeholders += 1;
                of_group.placeholder_bytes += socket.ring_bytes.unwrap_or(0);
            } else {
                of_group.members += 1;
                of_group.counted += u64::from(socket.counts.is_some());
            }
        }
    }
    let samples = |number: fn(&OfGroup<'_>) -> u64| -> Vec<Sample> {
        let sample = |((ifindex, group), numbers): (&(u32, u16), &OfGroup<'_>)| {
            let mut labels = device_labels(snapshot, *ifindex);
            let mode = numbers.mode.to_owned();
            labels.extend([("group", group.to_string()), ("mode", mode)]);
            (labels, Number::Whole(number(numbers)))
        };
        groups.iter().map(sample).collect()
    };
    [
        gauge(
            "fanpcap_group_members",
            "Packet sockets in the fan-out group, of any program; 0 while the group has only a founder.",
            samples(|numbers| numbers.members),
        ),
        gauge(
            "fanpcap_group_members_with_counters",
            "Members of the group that publish counters: programs that use this library.",
            samples(|numbers| numbers.counted),
        ),
        gauge(
            "fanpcap_group_placeholders",
            "Sockets of members that are gone, which a group with a steering program keeps until newcomers take their slots.",
            samples(|numbers| numbers.placeholders),
        ),
        gauge(
            "fanpcap_group_placeholder_ring_bytes",
            "Memory of the rings of the group's placeholders.",
            samples(|numbers| numbers.placeholder_bytes),
        ),
    ]
}

/// Metrics from the tables of groups with a steering program.
fn tables(snapshot: &Snapshot) -> [Family; 7] {
    let samples = |figures: &[Figure<View>]| of_tables(snapshot, |view| numbers(figures, view));
    [
        counter(
            "fanpcap_group_table_changes_total",
            "Changes of slots or buckets in a group with a steering program.",
            samples(&[(None, |view| view.changes)]),
        ),
        counter(
            "fanpcap_group_takeovers_total",
            "Members that a successor with the same name has replaced.",
            samples(&[(None, |view| view.takeovers)]),
        ),
        counter(
            "fanpcap_group_steered_nowhere_packets_total",
            "Packets that the group's steering program dropped.",
            of_tables(snapshot, |view| {
                let nowhere = view.nowhere.into_iter();
                nowhere.map(|it| (None, Number::Whole(it))).collect()
            }),
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
            "Packets that the kernel gave to members that are gone, dropped packets included.",
            samples(&[(None, |view| view.gone.received)]),
        ),
        counter(
            "fanpcap_group_gone_packets_total",
            "Packets that the kernel gave to members that are gone, by their fate.",
            samples(&[
                (Some("dropped"), |view| view.gone.dropped),
                (Some("taken"), |view| view.gone.taken),
                (Some("inherited"), |view| view.gone.inherited),
                (Some("unread"), |view| view.gone.unread),
            ]),
        ),
    ]
}

/// The fates of the packets that reached groups on XDP, or of pollers.
fn ledgers(snapshot: &Snapshot) -> [Family; 3] {
    let samples = |figures: &[Figure<Ledger>]| {
        of_tables(snapshot, |view| {
            let ledger = view.ledger.as_ref();
            ledger.map_or_else(Vec::new, |ledger| numbers(figures, ledger))
        })
    };
    let age = |view: &View| {
        let ledgers = view.ledger.iter();
        let age = |it: &Ledger| Number::Seconds(seconds(it.at_ns, snapshot.at_ns));
        ledgers.map(|it| (None, age(it))).collect()
    };
    [
        counter(
            "fanpcap_group_offered_packets_total",
            "Packets that came to a group on XDP, or of a poller.",
            samples(&[(None, |ledger| ledger.offered)]),
        ),
        counter(
            "fanpcap_group_offered_packets_by_fate_total",
            "Packets that came to a group on XDP, or of a poller, by their fate.",
            samples(&[
                (Some("in_rings"), |ledger| ledger.produced),
                (Some("filtered"), |ledger| ledger.unwanted),
                (Some("ring_full"), |ledger| ledger.dropped),
                (Some("steered_nowhere"), |ledger| ledger.nowhere),
                (Some("no_member"), |ledger| ledger.no_member),
                (Some("host_sent"), |ledger| ledger.host_sent),
                (Some("no_time"), |ledger| ledger.no_time),
                (Some("not_allowed"), |ledger| ledger.not_allowed),
            ]),
        ),
        gauge(
            "fanpcap_group_offered_packets_age_seconds",
            "Time since a member published the offered packets; a member does so ten times a second while packets come.",
            of_tables(snapshot, age),
        ),
    ]
}

/// Samples of each table, each with the value of the label `fate`, if the metric has that label.
fn of_tables(
    snapshot: &Snapshot,
    figures: impl Fn(&View) -> Vec<(Option<&'static str>, Number)>,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    for ((ifindex, group), view) in &snapshot.tables {
        let is_it = |it: &&Socket| {
            it.ifindex == *ifindex && it.group.as_ref().is_some_and(|it| it.number == *group)
        };
        let socket = snapshot.sockets.iter().find(is_it);
        let Some(of_socket) = socket.and_then(|it| it.group.as_ref()) else {
            continue;
        };
        for (fate, number) in figures(view) {
            let mut labels = device_labels(snapshot, *ifindex);
            labels.extend([
                ("group", group.to_string()),
                ("mode", of_socket.mode.clone()),
            ]);
            labels.extend(fate.map(|fate| ("fate", fate.to_owned())));
            samples.push((labels, number));
        }
    }
    samples
}

/// The numbers of a group.
#[derive(Default)]
struct OfGroup<'a> {
    mode: &'a str,
    members: u64,
    /// Members with counters.
    counted: u64,
    placeholders: u64,
    placeholder_bytes: u64,
}
