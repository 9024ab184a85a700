//! The output of `fanpcap group`, with the field names of its JSON. docs/group-json.md describes
//! each field.

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_group::page::MemberId;
use fanpcap_group::view::{Elephant, FinalCounters, Leveled, Place, State, UnderWay, View};
use fanpcap_linux::process::stat::Stat;
use fanpcap_snapshot::{Device, Offered, Process, Snapshot, Socket, percent, rounded, seconds};
use serde::Serialize;

/// Version of the JSON format. A new field does not change the version; a changed or removed field
/// increments it.
pub(super) const SCHEMA: u32 = 1;

/// A group.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Shown {
    pub(super) schema: u32,
    pub(super) time_unix_seconds: f64,
    pub(super) network_namespace: u64,
    pub(super) device: String,
    pub(super) ifindex: u32,
    pub(super) group: u16,
    pub(super) mode: String,
    /// Which member began the group with mode `hash` instead of `flow`, and why.
    pub(super) hash_because: Option<String>,
    /// The process that has founded the group and keeps it.
    pub(super) founder_pid: Option<u32>,
    /// The founder, as texts name it.
    #[serde(skip)]
    pub(super) founder: Option<String>,
    /// Why the host may need the device's packets, if a member steals them.
    pub(super) stolen_from_host: Option<&'static str>,
    /// Whether the group has a table.
    pub(super) is_steered: bool,
    pub(super) members_total: usize,
    pub(super) placeholders_total: usize,
    pub(super) placeholders_ring_bytes: u64,
    pub(super) buckets_total: Option<usize>,
    pub(super) changes_total: Option<u64>,
    pub(super) takeovers_total: Option<u64>,
    pub(super) last_moved_buckets: Option<u64>,
    pub(super) last_moved_seconds_ago: Option<f64>,
    /// The change under way, in words.
    pub(super) under_way: Option<String>,
    pub(super) gone: Option<Sums>,
    pub(super) ledger: Option<Offered>,
    pub(super) steered_nowhere_packets_total: Option<u64>,
    pub(super) balance: Option<Rounds>,
    pub(super) slots: Vec<Slot>,
}

/// Sums over the members that are gone.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Sums {
    pub(super) members_total: u64,
    pub(super) received_packets_total: u64,
    pub(super) dropped_packets_total: u64,
    pub(super) taken_packets_total: u64,
    pub(super) inherited_packets_total: u64,
    pub(super) unread_packets_total: u64,
    pub(super) unknown_members_total: u64,
}

/// The result of a balanced group's last round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Rounds {
    pub(super) moves_live_flows: bool,
    pub(super) rounds_total: u64,
    pub(super) busiest_above_percent: f64,
    pub(super) elephants: Vec<Big>,
}

/// A bucket with more packets than one member should get. Such a bucket does not move.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Big {
    pub(super) bucket: u16,
    pub(super) slot: u8,
    pub(super) packets_percent: f64,
}

/// A slot, or a member of a group without slots.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Slot {
    pub(super) slot: Option<u8>,
    pub(super) state: &'static str,
    pub(super) socket: u64,
    pub(super) pid: Option<u32>,
    pub(super) program: Option<String>,
    /// The digest of the member's name, in hexadecimal digits.
    pub(super) name: Option<String>,
    pub(super) buckets: Option<usize>,
    pub(super) share_percent: Option<f64>,
    pub(super) weight: Option<u16>,
    pub(super) class: Option<u8>,
    pub(super) state_seconds: Option<f64>,
    pub(super) heir_slot: Option<u8>,
    pub(super) ring_bytes: Option<u64>,
    /// The version of our library in the member's process.
    pub(super) library_version: Option<String>,
    /// Whether the library's file was replaced or removed after the process had loaded it.
    pub(super) library_is_replaced: Option<bool>,
    #[serde(skip)]
    pub(super) is_member: bool,
    /// A signal or a debugger has stopped the member's process.
    #[serde(skip)]
    pub(super) is_stopped: bool,
}

impl Shown {
    /// Adds the process that holds the group's lock to the text of the change.
    pub(super) fn note_holder(&mut self, holder: &Stat) {
        let change = self
            .under_way
            .take()
            .unwrap_or_else(|| "a change".to_owned());
        let state = if holder.is_stopped() {
            ", which is stopped,"
        } else {
            ""
        };
        let pid = holder.pid;
        self.under_way = Some(format!(
            "{change}: process {pid}{state} holds the group's lock"
        ));
    }

    /// The output for the group of this number on the device with the index `ifindex`. `view` is
    /// the view of the group's table; `None` if the group has no table.
    pub(super) fn of(
        snapshot: &Snapshot,
        (ifindex, group): (u32, u16),
        view: Option<&View>,
        now_ns: u64,
    ) -> Self {
        let is_in = |it: &&Socket| {
            it.ifindex == ifindex && it.of_group().is_some_and(|it| it.number == group)
        };
        let sockets: Vec<&Socket> = snapshot.sockets.iter().filter(is_in).collect();
        let founder = founder(&sockets);
        let device = device(snapshot, ifindex);
        let slots: Vec<Slot> = match view {
            Some(view) => {
                let places = view.places.iter();
                places.map(|it| of_place(it, &sockets, now_ns)).collect()
            }
            None => {
                let members = sockets.iter().filter(|it| it.group.is_some());
                members.map(|it| of_socket(it)).collect()
            }
        };
        let moved = view.and_then(|view| view.moved);
        let placeholders = slots.iter().filter(|it| !it.is_member);
        Self {
            schema: SCHEMA,
            time_unix_seconds: snapshot.unix_seconds,
            network_namespace: snapshot.netns,
            device: device.map_or_else(String::new, |it| it.name.clone()),
            ifindex: device.map_or(ifindex, Device::shown_ifindex),
            group,
            mode: mode(&sockets),
            hash_because: hash_because(&sockets),
            founder_pid: founder.and_then(|it| it.pid),
            founder: founder.map(name),
            stolen_from_host: device.and_then(|it| it.stolen_from_host),
            is_steered: view.is_some(),
            members_total: slots.iter().filter(|it| it.is_member).count(),
            placeholders_total: placeholders.clone().count(),
            placeholders_ring_bytes: placeholders.filter_map(|it| it.ring_bytes).sum(),
            buckets_total: view.map(|_| BUCKETS),
            changes_total: view.map(|view| view.changes),
            takeovers_total: view.map(|view| view.takeovers),
            last_moved_buckets: moved.map(|it| it.buckets),
            last_moved_seconds_ago: moved.map(|it| rounded(seconds(it.at_ns, now_ns))),
            under_way: view
                .and_then(|view| view.under_way)
                .map(|change| under_way(change, now_ns)),
            gone: view.map(|view| sums(&view.gone)),
            ledger: view
                .and_then(|view| view.ledger)
                .map(|it| Offered::of(&it, now_ns)),
            steered_nowhere_packets_total: view.and_then(|view| view.nowhere),
            balance: view.and_then(|view| view.leveled.as_ref()).map(rounds),
            slots,
        }
    }
}

/// The mode of the group of these sockets.
pub(super) fn mode(sockets: &[&Socket]) -> String {
    let of_members = sockets.iter().find_map(|it| it.group.as_ref());
    let group = of_members.or_else(|| sockets.iter().find_map(|it| it.founds.as_ref()));
    group.map_or_else(String::new, |it| it.mode.clone())
}

/// The process that has founded the group of these sockets.
pub(super) fn founder<'a>(sockets: &[&'a Socket]) -> Option<&'a Process> {
    let founder = sockets.iter().find(|it| it.founds.is_some())?;
    founder.process.as_ref()
}

/// A process, as texts name it.
pub(super) fn name(process: &Process) -> String {
    let pid = process.pid.map(|pid| format!(" (process {pid})"));
    format!("{}{}", process.program, pid.unwrap_or_default())
}

/// Which member began the group with mode `hash` instead of `flow`, and why.
pub(super) fn hash_because(sockets: &[&Socket]) -> Option<String> {
    let mut groups = sockets.iter().filter_map(|it| it.group.as_ref());
    groups.find_map(|it| it.no_flow.clone())
}

impl Slot {
    /// The member's identity.
    pub(super) fn id(&self) -> MemberId {
        MemberId::of_socket(self.socket)
    }
}

fn of_place(place: &Place, sockets: &[&Socket], now_ns: u64) -> Slot {
    let member = place.member.socket();
    let socket = sockets.iter().find(|it| u64::from(it.inode) == member);
    let is_member = matches!(place.state, State::Live | State::Newcomer);
    let seen = socket.map(|it| of_socket(it)).unwrap_or_default();
    Slot {
        slot: Some(place.slot),
        state: state(place),
        socket: member,
        pid: seen.pid.or(Some(place.pid)),
        program: seen.program.filter(|_| is_member),
        name: (place.name != 0).then(|| digits(place.name)),
        buckets: Some(place.buckets),
        share_percent: Some(percent(place.buckets)),
        weight: Some(place.weight),
        class: Some(place.class),
        state_seconds: Some(rounded(seconds(place.since_ns, now_ns))),
        heir_slot: place.taker,
        ring_bytes: seen.ring_bytes,
        library_version: seen.library_version,
        library_is_replaced: seen.library_is_replaced,
        is_member,
        is_stopped: seen.is_stopped,
    }
}

/// A member of a group without a table.
fn of_socket(socket: &Socket) -> Slot {
    let process = socket.process.as_ref();
    let library = process.and_then(|it| it.library.as_ref());
    Slot {
        state: "member",
        socket: socket.inode.into(),
        pid: process.and_then(|it| it.pid),
        program: process.map(|it| it.program.clone()),
        ring_bytes: socket.ring_bytes,
        library_version: library.map(|it| it.version.clone()),
        library_is_replaced: library.map(|it| it.is_replaced),
        is_stopped: process.is_some_and(|it| it.is_stopped),
        is_member: !socket.is_placeholder,
        ..Slot::default()
    }
}

/// The device with this index.
pub(super) fn device(snapshot: &Snapshot, ifindex: u32) -> Option<&Device> {
    snapshot.devices.iter().find(|it| it.ifindex == ifindex)
}

/// A name's digest as text.
pub(super) fn digits(name: u64) -> String {
    format!("{name:016x}")
}

/// The state of a slot whose ring has been read to the end.
pub(super) const PLACEHOLDER: &str = "placeholder";

fn state(place: &Place) -> &'static str {
    match place.state {
        State::Live | State::Newcomer if place.weight == 0 => "drained",
        State::Live => "live",
        State::Newcomer => "newcomer",
        State::Dead => "gone",
        State::TakenOver => "inherited",
        State::Vacant => PLACEHOLDER,
        State::Awaited => "awaited",
        State::Free => "free",
    }
}

fn under_way(change: UnderWay, now_ns: u64) -> String {
    match change {
        UnderWay::Join {
            slot,
            pid,
            since_ns,
        } => {
            let since = rounded(seconds(since_ns, now_ns));
            format!("a newcomer, pid {pid}, has been joining into slot {slot} for {since} s")
        }
        UnderWay::Balance => "buckets move".to_owned(),
        UnderWay::Vacate(slot) => format!("slot {slot} becomes a placeholder"),
        UnderWay::Trim(slot) => format!("slot {slot} is given up"),
        UnderWay::Succeed(from, to) => format!("slot {to} takes over what slot {from} has"),
        UnderWay::Renumber => "slots get new numbers".to_owned(),
    }
}

fn rounds(leveled: &Leveled) -> Rounds {
    let big = |elephant: &Elephant| Big {
        bucket: elephant.bucket,
        slot: elephant.slot.0,
        packets_percent: f64::from(elephant.part) / 10.0,
    };
    let above = u32::try_from(leveled.above).unwrap_or(u32::MAX);
    Rounds {
        moves_live_flows: leveled.moves_all,
        rounds_total: leveled.rounds,
        busiest_above_percent: f64::from(above) / 10.0,
        elephants: leveled.elephants.iter().map(big).collect(),
    }
}

fn sums(gone: &FinalCounters) -> Sums {
    Sums {
        members_total: gone.members,
        received_packets_total: gone.received,
        dropped_packets_total: gone.dropped,
        taken_packets_total: gone.taken,
        inherited_packets_total: gone.inherited,
        unread_packets_total: gone.unread,
        unknown_members_total: gone.unknown,
    }
}
