//! Takes snapshots of a network namespace. Asks the kernel for devices and packet sockets, reads
//! members' pages and groups' tables, and finds the processes of the sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use fanpcap_config::device::ANY;
use fanpcap_config::mode::ModeKind;
use fanpcap_config::report::harmless_text;
use fanpcap_group::record::{LastLook, Record, Running};
use fanpcap_group::roster::{self, RosterEntry};
use fanpcap_group::view::{Place, View};
use fanpcap_group::waiting;
use fanpcap_linux::interface;
use fanpcap_linux::netlink::{diag, link};
use fanpcap_linux::process::netns;
use fanpcap_linux::wait::clock;

use crate::gone::{Gone, members_wait};
use crate::holders::Holders;
use crate::host_use::HostUse;
use crate::pollers;
use crate::snapshot::{Counts, Device, Group, Process, Snapshot, Socket, on_engine};
use crate::tables::{GroupKey, Tables};

/// The name under which sockets of a removed device are listed.
const GONE: &str = "gone";

/// Takes snapshots. Keeps the sockets' owners, the groups' tables and the use by the host for the
/// next snapshot, because they are costly to find.
#[derive(Debug)]
pub struct Source {
    device: Option<String>,
    holders: Holders,
    tables: Tables,
    host_use: HostUse,
}

impl Source {
    /// A source for one device, or for all devices that have packet sockets. The device may be
    /// named as applications name it, with an engine.
    ///
    /// # Errors
    /// The device does not exist, or its engine shows no groups. The error says how many members
    /// wait for which device that is gone.
    pub fn new(device: Option<&str>) -> Result<Self> {
        device.map_or(Ok(()), pollers::ensure_shown)?;
        let device = device.map(pollers::shown_name);
        let is_device = |name: &&str| *name != ANY && !pollers::is_pollers(name);
        if let Some(name) = device.filter(is_device) {
            let found = interface::find(name).with_context(|| format!("looking for {name}"))?;
            ensure!(found.is_some(), missing(name));
        }
        if let Some(name) = device.filter(|name| pollers::is_pollers(name)) {
            pollers::check(name)?;
        }
        Ok(Self {
            device: device.map(str::to_owned),
            holders: Holders::default(),
            tables: Tables::default(),
            host_use: HostUse::default(),
        })
    }

    /// Takes a snapshot.
    ///
    /// # Errors
    /// The kernel does not list packet sockets or devices.
    pub fn take(&mut self) -> Result<Snapshot> {
        let links = link::links().context("listing devices")?;
        let seen = roster::entries().context(
            "listing packet sockets (this needs packet diag in the kernel: CONFIG_PACKET_DIAG)",
        )?;
        // Where the kernel's list of Unix sockets is hidden, nobody is seen to wait.
        let gone = {
            let is_up = |device: &str| links.iter().any(|it| it.name == device && it.is_up());
            Gone::of(waiting::all().unwrap_or_default(), &seen, is_up)
        };
        let is_meant = |name: &str| self.device.as_deref().is_none_or(|only| only == name);
        let waiting = gone.counts(is_meant);
        let mut seen = gone.sort(seen);
        seen.retain(|it| gone.awaited_by(it.socket.inode).is_none_or(is_meant));
        let polled = pollers::look(self.device.as_deref());
        // Take the time after reading the pages: no counter may be newer than the snapshot.
        let at_ns = clock::monotonic_ns();
        let mut devices = self.devices(&links, &seen, !waiting.is_empty());
        let shown: BTreeSet<u32> = devices.iter().map(|device| device.ifindex).collect();
        let seen: Vec<RosterEntry> = seen
            .into_iter()
            .filter(|seen| shown.contains(&seen.socket.ifindex))
            .collect();
        let reasons = self.host_use.look(stolen(&seen));
        for device in &mut devices {
            device.stolen_from_host = reasons.get(&device.ifindex).copied();
        }
        let tables = self.tables.look(&seen);
        let mut sockets = self.sockets(&seen, at_ns, &tables);
        for socket in &mut sockets {
            socket.waits_for_device = gone.awaited_by(socket.inode).is_some();
        }
        let netns = netns::inode().context("this process's network namespace")?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut snapshot = Snapshot {
            at_ns,
            unix_seconds: since_1970.unwrap_or_default().as_secs_f64(),
            host: host(),
            netns,
            netns_name: netns_name(netns),
            devices,
            sockets,
            tables,
            waiting,
        };
        pollers::add(&mut snapshot, polled, &mut self.holders);
        Ok(snapshot)
    }

    /// The devices to show. `is_awaited`: somebody waits for one of them.
    fn devices(&self, links: &[link::Link], seen: &[RosterEntry], is_awaited: bool) -> Vec<Device> {
        let of_link = |link: &link::Link| Device {
            ifindex: link.index,
            name: link.name.clone(),
            counters: Some(link.counters),
            stolen_from_host: None,
            poller: None,
        };
        let awaited = is_awaited.then_some(u32::MAX);
        let indices = seen.iter().map(|seen| seen.socket.ifindex);
        let indices: BTreeSet<u32> = indices.chain(awaited).collect();
        let mut devices: Vec<Device> = links
            .iter()
            .filter(|link| match &self.device {
                Some(name) => *name == link.name,
                None => indices.contains(&link.index),
            })
            .map(of_link)
            .collect();
        let unlisted = indices
            .iter()
            .filter(|&&index| links.iter().all(|link| link.index != index))
            .map(|&ifindex| Device {
                ifindex,
                name: unlisted_name(ifindex),
                counters: None,
                stolen_from_host: None,
                poller: None,
            });
        let is_lost = |name: &str| name != ANY && links.iter().all(|link| link.name != name);
        let is_shown = |device: &Device| match self.device.as_deref() {
            Some(only) if device.ifindex == u32::MAX => is_awaited || is_lost(only),
            Some(only) => only == device.name,
            None => true,
        };
        devices.extend(unlisted.filter(is_shown));
        devices.sort_by(|one, other| one.name.cmp(&other.name));
        devices
    }

    fn sockets(
        &mut self,
        seen: &[RosterEntry],
        at_ns: u64,
        tables: &BTreeMap<GroupKey, View>,
    ) -> Vec<Socket> {
        let modes = modes(seen);
        // The pid on a page is only a hint, because it may be from another PID namespace.
        let hint =
            |seen: &RosterEntry| (seen.socket.inode, seen.page.as_ref().map(|page| page.pid));
        let members = seen.iter().filter(|seen| !seen.is_placeholder);
        self.holders.find(&members.map(hint).collect());
        let mut socket = |seen: &RosterEntry| {
            let process = self.process(seen);
            // A stopped process no longer waits, even if it was stopped during a wait.
            let is_stopped = process.as_ref().is_some_and(|process| process.is_stopped);
            let place = place(seen, tables);
            Socket {
                inode: seen.socket.inode,
                ifindex: seen.socket.ifindex,
                protocol: seen.socket.protocol,
                group: seen.socket.fanout.map(|fanout| Group {
                    number: fanout.id,
                    mode: mode(seen, fanout, &modes),
                    no_flow: no_flow(seen, fanout),
                }),
                founds: seen.founds.map(|number| Group {
                    number,
                    mode: seen
                        .page
                        .as_ref()
                        .map_or_else(String::new, Record::shown_mode),
                    no_flow: None,
                }),
                ring_bytes: ring_bytes(seen),
                captures_sent: page_of_member(seen).is_some_and(|page| page.captures_sent),
                counts: counts(seen).map(|counts| Counts {
                    waits: counts.waits && !is_stopped,
                    ..counts
                }),
                program_counters: program_counters(seen),
                program_counted_ns: running(seen).map_or(0, |running| running.counted_ns),
                unread_seconds: unread(seen, at_ns),
                is_never_read: page_of_member(seen).is_some_and(Record::is_never_read),
                waits_for_device: false,
                has_page: seen.page.is_some(),
                is_at_poller: false,
                is_placeholder: seen.is_placeholder,
                class: place.map(|place| place.class).or(class(seen)),
                place,
                process,
            }
        };
        seen.iter().map(&mut socket).collect()
    }

    /// The process that owns a socket. If /proc hides the process, the result has only the
    /// application's name, from the member page.
    fn process(&mut self, seen: &RosterEntry) -> Option<Process> {
        let found = self.holders.process(seen.socket.inode);
        let Some(page) = &seen.page else { return found };
        Some(Process {
            program: page.program.clone(),
            ..found.unwrap_or_default()
        })
    }
}

/// The message about a device that does not exist, and about members that wait for a device.
fn missing(name: &str) -> String {
    let message = interface::missing(name);
    let seen = Source::new(None).and_then(|mut source| source.take());
    let waiting = seen.map(|snapshot| snapshot.waiting).unwrap_or_default();
    let waiting = waiting.iter();
    let waiting = waiting.map(|(device, &count)| format!("; {}", members_wait(device, count)));
    harmless_text(&(message + &waiting.collect::<String>()))
}

/// The devices that members steal from the host, unless the host uses them.
fn stolen(seen: &[RosterEntry]) -> BTreeSet<u32> {
    let steals = |seen: &&RosterEntry| seen.page.as_ref().is_some_and(|page| page.steals);
    let stealing = seen.iter().filter(|seen| !seen.is_placeholder);
    stealing
        .filter(steals)
        .map(|seen| seen.socket.ifindex)
        .collect()
}

/// Bytes of a member's rings on XDP, or else of the socket's ring.
fn ring_bytes(seen: &RosterEntry) -> Option<u64> {
    let of_engine = seen.page.as_ref().map(|page| page.ring_bytes);
    let ring = seen.socket.ring.as_ref();
    let of_socket = ring.map(|it| u64::from(it.block_size) * u64::from(it.block_count));
    of_engine.filter(|&bytes| bytes != 0).or(of_socket)
}

/// A socket's slot in the table of its group.
fn place(seen: &RosterEntry, tables: &BTreeMap<GroupKey, View>) -> Option<Place> {
    let view = tables.get(&(seen.socket.ifindex, seen.socket.fanout?.id))?;
    let mut places = view.places.iter();
    places.find(|place| place.member == seen.id()).copied()
}

/// The counters on a page; `None` if the member never read its counters.
fn counts(seen: &RosterEntry) -> Option<Counts> {
    let page = seen.page.as_ref().filter(|page| page.read_ns > 0)?;
    Some(Counts {
        read_ns: page.read_ns,
        received: page.counters.received,
        dropped: page.counters.dropped,
        taken: page.taken,
        read_taken: page.read_taken,
        waits: page.waits,
    })
}

/// The page of a socket that gets packets: a founder's gets none.
fn page_of_member(seen: &RosterEntry) -> Option<&Record> {
    seen.page.as_ref().filter(|page| !page.is_founder)
}

/// Seconds since the application last looked for packets; 0 while the application waits. `None` for
/// a founder, which gets no packets.
fn unread(seen: &RosterEntry, at_ns: u64) -> Option<f64> {
    let page = page_of_member(seen)?;
    if page.last_look == LastLook::Waits {
        return Some(0.0);
    }
    page.unread_for(at_ns).map(|since| since.as_secs_f64())
}

/// The class on the page of a steered group's member.
fn class(seen: &RosterEntry) -> Option<u8> {
    running(seen)?;
    seen.page.as_ref().map(|page| page.class)
}

fn running(seen: &RosterEntry) -> Option<&Running> {
    seen.page.as_ref()?.steering.as_ref()
}

/// The steering program's counters; `None` if the member never read them.
fn program_counters(seen: &RosterEntry) -> Option<Vec<i64>> {
    let running = running(seen)?;
    let counters = Some(&running.counters).filter(|_| running.counted_ns > 0)?;
    let used = counters.iter().rposition(|&counter| counter != 0);
    let used = &counters[..used.map_or(0, |last| last + 1)];
    Some(
        used.iter()
            .map(|counter| i64::from_ne_bytes(counter.to_ne_bytes()))
            .collect(),
    )
}

/// The groups' modes with options, and the beginnings of their steering programs. The kernel shows
/// neither, so they are known only if a member has a page.
fn modes(seen: &[RosterEntry]) -> BTreeMap<(u32, u16), String> {
    let of_page = |seen: &RosterEntry| {
        let group = seen.socket.fanout?.id;
        let page = seen.page.as_ref()?;
        Some(((seen.socket.ifindex, group), page.shown_mode()))
    };
    seen.iter().filter_map(of_page).collect()
}

/// The mode of a socket's group, with the group's engine.
fn mode(
    seen: &RosterEntry,
    group: diag::FanoutGroup,
    modes: &BTreeMap<GroupKey, String>,
) -> String {
    let told = modes.get(&(seen.socket.ifindex, group.id)).cloned();
    let mode = told.unwrap_or_else(|| kernel_mode(group));
    match seen.is_on_engine() {
        true => on_engine(&mode),
        false => mode,
    }
}

/// Why the socket's group has mode `hash`, if this member began it without `flow`.
fn no_flow(seen: &RosterEntry, group: diag::FanoutGroup) -> Option<String> {
    let page = seen.page.as_ref()?;
    let is_hash = group.mode == ModeKind::Hash.kernel_type();
    let why = page.no_flow.filter(|_| is_hash)?;
    Some(format!("{} (process {}) {why}", page.program, page.pid))
}

/// The kernel's mode, without options (linux/if_packet.h, `PACKET_FANOUT_*`).
fn kernel_mode(group: diag::FanoutGroup) -> String {
    let kind = ModeKind::ALL
        .into_iter()
        .find(|kind| kind.kernel_type() == group.mode);
    match (kind, group.mode) {
        (Some(kind), _) => kind.name().to_owned(),
        (None, 6) => "cbpf".to_owned(),
        (None, 7) => "ebpf".to_owned(),
        (None, other) => format!("mode-{other}"),
    }
}

/// The name for sockets whose device the kernel does not list: they are on all devices, or on a
/// removed device. The kernel gives sockets of an unregistered device the index -1
/// (`net/packet/af_packet.c`, `packet_notifier`).
fn unlisted_name(ifindex: u32) -> String {
    match ifindex {
        0 => ANY.to_owned(),
        u32::MAX => GONE.to_owned(),
        other => format!("#{other}"),
    }
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Name of a network namespace.
fn netns_name(inode: u64) -> Option<String> {
    let is_it = |path: &std::path::Path| fs::metadata(path).is_ok_and(|it| it.st_ino() == inode);
    if is_it("/proc/1/ns/net".as_ref()) {
        return Some("host".to_owned());
    }
    let named = fs::read_dir("/run/netns").ok()?.flatten();
    named
        .map(|entry| entry.path())
        .find(|path| is_it(path))
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests;
