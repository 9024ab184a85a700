//! The groups of pollers. The kernel lists none of them, so this command asks the pollers. Each
//! poller shows the groups of the command's user; to root it shows the groups of all users. The
//! groups of a user at a poller are shown as a device with the name of the poller's socket, such as
//! `packet:eth0`, or `packet:eth0/1000` for the groups of another user.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use anyhow::{Error, Result, anyhow, ensure};
use fanpcap_buckets::Slot;
use fanpcap_config::driver::{Driver, Kind};
use fanpcap_group::page::MemberId;
use fanpcap_group::view::{Elephant, FinalCounters, Ledger, Leveled, Moved, Place, State, View};
use fanpcap_linux::netlink::link;
use fanpcap_linux::process::effective_user;
use fanpcap_poll::message::{SeenGroup, SeenLedger, SeenRounds, SeenSlot};
use fanpcap_poll::{Asking, is_closed, place};

use crate::holders::{self, Holders};
use crate::snapshot::{Counts, Device, Group, OfPoller, Process, Snapshot, Socket, on, seconds};

/// How long a poller may take for a reply. It may be stopped.
pub const LIMIT: Duration = Duration::from_millis(500);

/// A poller's groups of one user.
pub(crate) struct AtPoller {
    of: OfPoller,
    name: String,
    groups: Vec<SeenGroup>,
}

/// Whether a device's name is that of a poller's socket, such as `packet:eth0`, or of the groups of
/// a user there.
pub fn is_pollers(name: &str) -> bool {
    split(name).is_some()
}

/// The parts of the name of a poller's socket: engine and device.
fn split(name: &str) -> Option<(&str, &str)> {
    let (engine, device) = name.split_once(':')?;
    let mut engines = Driver::all().filter(|it| it.has_poller());
    engines.find(|it| it.name() == engine)?;
    Some((engine, device))
}

/// The groups that pollers show, as far as `device` is their device, or the name of their socket. A
/// poller that this process may not ask, or that does not reply, shows none.
pub(crate) fn look(device: Option<&str>) -> Vec<AtPoller> {
    let mut all = Vec::new();
    for socket in place::names() {
        let Some(socket) = socket.to_str() else {
            continue;
        };
        let Some((engine, of)) = split(socket) else {
            continue;
        };
        let is_asked = |only: &str| {
            let rest = only.strip_prefix(socket);
            only == of || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if !device.is_none_or(is_asked) {
            continue;
        }
        let groups = ask(engine, of).unwrap_or_default();
        all.extend(by_user(socket, of, groups));
    }
    let is_asked = |it: &AtPoller| {
        device.is_none_or(|only| only == it.of.device || only == it.of.socket || only == it.name)
    };
    all.retain(is_asked);
    all
}

/// Checks that the poller with this name replies.
///
/// # Errors
/// Why not, and what to do.
pub(crate) fn check(name: &str) -> Result<()> {
    let socket = name.split('/').next().unwrap_or_default();
    let (engine, device) = split(socket).unwrap_or_default();
    match ask(engine, device) {
        Ok(_) => Ok(()),
        Err(error) => Err(unreachable(socket, &error)),
    }
}

/// Why a poller does not reply, and what to do.
pub fn unreachable(socket: &str, error: &io::Error) -> Error {
    let is = |kinds: &[io::ErrorKind]| kinds.contains(&error.kind());
    if is(&[io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused]) {
        return anyhow!("no poller serves {socket}: start one: fanpcap poller {socket}");
    }
    if is(&[io::ErrorKind::TimedOut]) {
        return anyhow!("the poller of {socket} does not answer: it is stopped or busy");
    }
    if is_closed(error) {
        return anyhow!("the poller of {socket} has closed the connection: {error}: ask again");
    }
    // A directory that is not trusted has an error without a number.
    if is(&[io::ErrorKind::PermissionDenied]) && error.raw_os_error().is_some() {
        return anyhow!(
            "this user may not use the poller of {socket}: {error}: be root or in the group of the \
             poller's --socket-group"
        );
    }
    anyhow!("the poller of {socket}: {error}")
}

/// Asks the poller of a device whether it serves this process's user. Returns its process id; 0 if
/// it is in another PID namespace.
///
/// # Errors
/// Why it does not reply. [`unreachable`] has the words.
pub fn poller(engine: &str, device: &str) -> io::Result<u32> {
    let found = place::open(engine, device)?;
    Asking::with(&found.directory, &found.name, LIMIT, |asking| {
        asking.groups()?;
        Ok(asking.peer()?.pid)
    })
}

/// The device in the name of a poller's socket, of the groups of a user there, or in the name by
/// which an application opens the device on an engine; other names as they are.
pub fn device_of(name: &str) -> &str {
    match split(name) {
        Some((_, device)) => device.split('/').next().unwrap_or_default(),
        None => shown_name(name),
    }
}

/// The name that snapshots have for what an application opens by `name`: the groups on `xdp:eth0`
/// are those of `eth0`, and the groups on `packet:eth0` are those of the poller's socket.
pub fn shown_name(name: &str) -> &str {
    let named = name.split_once(':').filter(|_| split(name).is_none());
    let named = named.filter(|(engine, _)| Driver::named(engine).is_some());
    named.map_or(name, |(_, device)| device)
}

/// Checks that commands see the groups of the device that `name` names.
///
/// # Errors
/// A kernel module shares their packets, and its groups are not shown.
pub(crate) fn ensure_shown(name: &str) -> Result<()> {
    let engine = name.split_once(':').and_then(|it| Driver::named(it.0));
    ensure!(
        engine.is_none_or(|it| it.kind() != Kind::Library),
        "a kernel module shares the packets of {name}, and only the module itself shows its groups, \
         below /proc/net"
    );
    Ok(())
}

/// Asks a poller for its groups.
///
/// # Errors
/// Why it does not reply.
fn ask(engine: &str, device: &str) -> io::Result<Vec<SeenGroup>> {
    let found = place::open(engine, device)?;
    Asking::with(&found.directory, &found.name, LIMIT, Asking::groups)
}

fn by_user(socket: &str, device: &str, groups: Vec<SeenGroup>) -> Vec<AtPoller> {
    let mut users: BTreeMap<u32, Vec<SeenGroup>> = BTreeMap::new();
    for group in groups {
        users.entry(group.user).or_default().push(group);
    }
    let of_user = |(user, groups): (u32, Vec<SeenGroup>)| AtPoller {
        of: OfPoller {
            socket: socket.to_owned(),
            device: device.to_owned(),
            ifindex: groups.first().map_or(0, |it| it.ifindex),
            user,
        },
        name: match user == effective_user() {
            true => socket.to_owned(),
            false => format!("{socket}/{user}"),
        },
        groups,
    };
    users.into_iter().map(of_user).collect()
}

/// Adds the groups of pollers to a snapshot.
pub(crate) fn add(snapshot: &mut Snapshot, all: Vec<AtPoller>, holders: &mut Holders) {
    for at in all {
        let ifindex = index(&at.name);
        let source = at.groups.first().map(|it| it.source);
        snapshot.devices.push(Device {
            ifindex,
            name: at.name,
            counters: source.map(|[received, dropped]| link::Counters {
                rx_packets: received,
                rx_dropped: dropped,
                ..link::Counters::default()
            }),
            stolen_from_host: None,
            poller: Some(at.of.clone()),
        });
        let engine = at.of.socket.split(':').next().unwrap_or_default();
        for group in at.groups {
            let view = view(&group);
            let slots = group.slots.iter().zip(&view.places);
            let sockets = slots.map(|(slot, place)| Socket {
                ifindex,
                group: group.number.map(|number| Group {
                    number,
                    mode: on(engine, &group.title),
                    no_flow: None,
                }),
                process: process(&group, slot, holders),
                ..socket(slot, *place, snapshot.at_ns)
            });
            let sockets: Vec<Socket> = sockets.collect();
            snapshot.sockets.extend(sockets);
            if let Some(number) = group.number {
                snapshot.tables.insert((ifindex, number), view);
            }
        }
    }
    snapshot
        .devices
        .sort_by(|one, other| one.name.cmp(&other.name));
}

/// An index that no device has, the same in each snapshot: the kernel's are positive numbers of 31
/// bits, and `u32::MAX` stands for devices that are gone.
fn index(name: &str) -> u32 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (hash | (1 << 31)) & !1
}

/// A member, without its process and group.
fn socket(slot: &SeenSlot, place: Place, at_ns: u64) -> Socket {
    let is_never_read = slot.looked_ns == 0;
    let since_ns = match slot.looked_ns {
        0 => slot.joined_ns,
        looked_ns => looked_ns,
    };
    let counts = slot.counts;
    let has_pool = slot.pool_bytes > 0;
    Socket {
        inode: u32::try_from(slot.member).unwrap_or(u32::MAX),
        ring_bytes: has_pool.then(|| slot.pool_bytes.into()),
        captures_sent: slot.wants_sent,
        counts: has_pool.then(|| Counts {
            read_ns: at_ns,
            received: counts.received(),
            dropped: counts.dropped,
            taken: Some(counts.delivered()),
            read_taken: Some(counts.delivered()),
            waits: false,
        }),
        unread_seconds: has_pool.then(|| seconds(since_ns, at_ns)),
        is_never_read: has_pool && is_never_read,
        has_page: has_pool,
        is_at_poller: true,
        is_placeholder: !matches!(place.state, State::Live | State::Newcomer),
        place: Some(place),
        class: Some(slot.class),
        ..Socket::default()
    }
}

/// The process of a member, if its process id is one of this process's PID namespace.
fn process(group: &SeenGroup, slot: &SeenSlot, holders: &mut Holders) -> Option<Process> {
    let is_here = slot.pid != 0 && holders::pid_namespace() == Some(group.pid_namespace);
    let found = is_here.then(|| holders.of_pid(slot.pid)).flatten();
    Some(found.unwrap_or_default())
}

/// What a poller shows of a group, as the view of a group's table.
pub fn view(group: &SeenGroup) -> View {
    let places = (0..=u8::MAX).zip(&group.slots).map(|(number, slot)| Place {
        slot: number,
        state: State::of(slot.state),
        member: MemberId::of_socket(slot.member),
        pid: slot.pid,
        buckets: slot.buckets.into(),
        weight: slot.weight,
        class: slot.class,
        since_ns: slot.since_ns,
        taker: slot.taker,
        name: slot.name,
    });
    let [
        members,
        received,
        dropped,
        taken,
        inherited,
        unread,
        unknown,
    ] = group.gone;
    let [buckets, at_ns] = group.moved;
    View {
        places: places.collect(),
        gone: FinalCounters {
            members,
            received,
            dropped,
            taken,
            inherited,
            unread,
            unknown,
        },
        takeovers: group.takeovers,
        changes: group.changes,
        moved: (at_ns > 0).then_some(Moved { buckets, at_ns }),
        ledger: Some(ledger(&group.ledger)),
        nowhere: Some(group.ledger.nowhere),
        leveled: group.rounds.as_ref().map(leveled),
        under_way: None,
    }
}

fn ledger(seen: &SeenLedger) -> Ledger {
    Ledger {
        at_ns: seen.at_ns,
        offered: seen.offered,
        nowhere: seen.nowhere,
        // The members of a stopped group count as none.
        no_member: seen.no_member.saturating_add(seen.stopped),
        produced: seen.produced,
        dropped: seen.dropped,
        // The library of a member evaluates its filter.
        unwanted: 0,
        host_sent: seen.unwanted,
        no_time: seen.no_time,
        not_allowed: seen.not_allowed,
    }
}

fn leveled(seen: &SeenRounds) -> Leveled {
    let elephant = |&(bucket, slot, part): &(u16, u8, u16)| Elephant {
        bucket,
        slot: Slot(slot),
        part,
    };
    Leveled {
        moves_all: seen.moves_all,
        rounds: seen.rounds,
        above: seen.above,
        elephants: seen.elephants.iter().map(elephant).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_poll::message::MemberCounts;

    fn group(user: u32, number: Option<u16>) -> SeenGroup {
        let slot = SeenSlot {
            state: State::Live as u8,
            member: 9,
            buckets: 4096,
            weight: 1,
            pool_bytes: 4096,
            joined_ns: 1_000_000_000,
            counts: MemberCounts {
                produced: 100,
                dropped: 5,
                taken: 90,
                rejected: 30,
            },
            ..SeenSlot::default()
        };
        let gone = SeenSlot {
            state: State::Vacant as u8,
            ..SeenSlot::default()
        };
        SeenGroup {
            number,
            user,
            ifindex: 4,
            title: "flow".to_owned(),
            source: [200, 7],
            slots: vec![slot, gone],
            ..SeenGroup::default()
        }
    }

    #[test]
    fn the_groups_of_each_user_are_a_device_of_their_own() {
        let own = effective_user();
        let groups = vec![
            group(own, Some(5)),
            group(own + 1, Some(5)),
            group(own, None),
        ];
        let all = by_user("packet:eth0", "eth0", groups);
        let mut snapshot = Snapshot {
            at_ns: 3_000_000_000,
            ..Snapshot::default()
        };
        add(&mut snapshot, all, &mut Holders::default());
        let names: Vec<&str> = snapshot.devices.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["packet:eth0", &format!("packet:eth0/{}", own + 1)]);
        assert_eq!(snapshot.devices[0].shown_ifindex(), 4);
        let [one, other] = [0, 1].map(|at: usize| snapshot.devices[at].ifindex);
        assert!(one != other && one > i32::MAX as u32 && other != u32::MAX);
        let counters = snapshot.devices[0].counters.unwrap();
        assert_eq!((counters.rx_packets, counters.rx_dropped), (200, 7));
        assert_eq!(snapshot.tables.len(), 2);
        assert_eq!(snapshot.sockets.len(), 6);
        let member = &snapshot.sockets[0];
        assert_eq!(member.group.as_ref().unwrap().mode, "flow on packet");
        let counts = member.counts.unwrap();
        assert_eq!((counts.received, counts.dropped), (75, 5));
        assert_eq!(
            (counts.taken, counts.backlog(3_000_000_000)),
            (Some(60), Some(10))
        );
        assert_eq!(member.unread_seconds, Some(2.0));
        assert!(member.is_never_read && !member.is_placeholder);
        assert!(snapshot.sockets[1].is_placeholder && snapshot.sockets[1].counts.is_none());
    }

    #[test]
    fn names_of_pollers_are_told_from_devices() {
        for name in ["packet:eth0", "afxdp:eth0", "packet:eth0/1000"] {
            assert!(is_pollers(name), "{name}");
            assert_eq!(device_of(name), "eth0");
        }
        for name in ["eth0", "eth0:1", "packet", "nflog:5"] {
            assert!(!is_pollers(name), "{name}");
            assert_eq!((device_of(name), shown_name(name)), (name, name));
        }
    }

    #[test]
    fn a_device_on_an_engine_has_the_devices_name_or_that_of_the_pollers_socket() {
        for name in ["xdp:eth0", "pfq:eth0", "tpacket:eth0", "pfring:eth0"] {
            assert!(!is_pollers(name), "{name}");
            assert_eq!((device_of(name), shown_name(name)), ("eth0", "eth0"));
        }
        let name = "dpdk:0000:3b:00.0";
        assert_eq!((device_of(name), shown_name(name)), (&name[5..], name));
        assert!(ensure_shown("xdp:eth0").is_ok() && ensure_shown("eth0").is_ok());
        let error = ensure_shown("pfring:eth0").unwrap_err().to_string();
        assert!(error.contains("pfring:eth0"), "{error}");
    }
}
