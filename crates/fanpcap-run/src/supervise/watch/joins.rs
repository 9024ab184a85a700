//! Detects which copies have joined the group, and which copies capture outside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use fanpcap_config::device::ANY;
use fanpcap_config::mode::ModeKind;
use fanpcap_group::roster::{self, RosterEntry};
use fanpcap_linux::bpf;
use fanpcap_linux::interface;
use fanpcap_linux::packet::ETH_P_ALL;
use fanpcap_linux::process::stat;
use fanpcap_snapshot::{on, on_engine};

use super::{Run, Watch};
use crate::ledger::{First, copy_of};
use crate::not_joined;

/// Interval of searches for outsiders.
const PERIOD: Duration = Duration::from_secs(1);

/// Copies that have no member in the group, but have a packet socket that gets all packets.
#[derive(Debug, Default)]
pub(super) struct Outsiders {
    looked: Option<Instant>,
    /// Sockets of outsiders that the last search found. A socket is reported only if two searches
    /// find it: a socket that exists only for a moment may just query the device.
    sockets: BTreeSet<u32>,
    /// Copies that were reported.
    said: BTreeSet<usize>,
    /// Sockets that existed before the copies.
    foreign: BTreeSet<u32>,
}

impl Outsiders {
    /// Must be called before the first copy starts: all sockets that exist now count as foreign.
    pub(super) fn new() -> Self {
        let seen = roster::entries().unwrap_or_default().into_iter();
        Self {
            foreign: seen.map(|seen| seen.socket.inode).collect(),
            ..Self::default()
        }
    }
}

impl Watch<'_> {
    /// Notes the mode of the group once a copy has joined it. Prints a message if this mode differs
    /// from the announced mode: the library chooses the mode by the copy's privileges.
    pub(super) fn note_mode(&mut self) {
        if self.mode.is_some() {
            return;
        }
        let (copy, record) = match self.ledger.first() {
            None => return,
            Some(First::Page(copy, record)) => (copy, record),
            Some(First::Mode { engine, mode }) => return self.note_mode_at(&engine, &mode),
        };
        let (has, expected) = (record.shown_mode(), &self.run.fanout.text);
        let (program, pid) = (&record.program, record.pid);
        let is_other = self.run.fanout.asked.is_none() && has != *expected;
        if is_other && !self.run.arguments.quiet {
            let why = match bpf::may_load(pid) {
                Some(false) if expected != ModeKind::Hash.name() => format!(
                    ": copy {copy}, process {pid} ({program}), has given up CAP_BPF, which {expected} needs"
                ),
                _ => String::new(),
            };
            let group = self.run.group;
            self.say(&format!("group {group} has {has}, not {expected}{why}"));
        }
        let asked = self.run.fanout.asked.as_ref();
        // The page has a steering program in one line, without its file's name.
        let mode = match asked.is_some_and(|asked| asked.is_of(&record)) {
            true => expected.clone(),
            false => has,
        };
        self.mode = Some(match record.is_on_engine() {
            true => on_engine(&mode),
            false => mode,
        });
    }

    /// Notes the mode of the copies' group at a poller.
    fn note_mode_at(&mut self, engine: &str, has: &str) {
        let (group, expected) = (self.run.group, &self.run.fanout.text);
        let is_other = self.run.fanout.asked.is_none() && has != *expected;
        if is_other && !self.run.arguments.quiet {
            self.say(&format!("group {group} has {has}, not {expected}"));
        }
        let mode = match is_other {
            true => has,
            false => expected,
        };
        self.mode = Some(on(engine, mode));
    }

    /// Prints one message when all copies have joined.
    pub(super) fn say_who_joined(&mut self) {
        let all = |watch: &Self| {
            let mut copies = watch.copies.iter();
            copies.all(|copy| watch.ledger.has_members(copy.number))
        };
        if self.has_said_joined || self.run.arguments.quiet || !all(self) {
            return;
        }
        self.has_said_joined = true;
        let name = |ifindex: u32| match ifindex {
            0 => Some(ANY.to_owned()),
            index => interface::name(index),
        };
        let devices: Vec<String> = self.ledger.devices().into_iter().filter_map(name).collect();
        let copies = match self.copies.len() {
            1 => "1 copy".to_owned(),
            copies => format!("{copies} copies"),
        };
        self.say(&format!(
            "in group {}, {}, on {}: {copies}",
            self.run.group,
            self.mode.as_ref().unwrap_or(&self.run.fanout.text),
            devices.join(", ")
        ));
    }

    /// Whether a copy ran long enough to join, but no copy has ever joined. False with
    /// --allow-outsiders.
    pub(super) fn has_none_joined(&self) -> bool {
        let is_asked = self.copies.iter().any(|copy| copy.questioned);
        is_asked && !self.run.arguments.allow_outsiders && self.ledger.had_no_members()
    }

    /// Ends all copies if one of them sees all packets. With --allow-outsiders, only prints a
    /// message.
    pub(super) fn look_for_outsiders(&mut self) {
        let early = |looked: Instant| looked.elapsed() < PERIOD;
        if self.stopped.is_some() || self.outsiders.looked.is_some_and(early) {
            return;
        }
        self.outsiders.looked = Some(Instant::now());
        let running = self.running();
        let has_joined = |copy: usize| self.ledger.has_members(copy);
        let is_asked = |copy: usize| !has_joined(copy) && !self.outsiders.said.contains(&copy);
        let joined = running.iter().any(|&(_, copy)| has_joined(copy));
        let asked = running.iter().map(|&(_, copy)| copy);
        let asked: BTreeSet<usize> = asked.filter(|&copy| is_asked(copy)).collect();
        let mut found = match asked.is_empty() {
            true => Vec::new(),
            false => outside(&running, &asked, self.run, &self.outsiders.foreign),
        };
        let all = found.clone();
        found.retain(|it| asked.contains(&it.copy) && it.is_apart_from(&all, joined));
        let before = std::mem::take(&mut self.outsiders.sockets);
        for outsider in found {
            self.outsiders.sockets.insert(outsider.socket);
            if before.contains(&outsider.socket) && self.outsiders.said.insert(outsider.copy) {
                self.turn_away(outsider);
            }
        }
    }

    /// Prints a message if the host has begun to use a device whose packets the copies steal from
    /// it. Each device and reason is printed once.
    pub(super) fn look_at_host(&mut self) {
        let reasons = self.host_use.look(self.ledger.stolen()).clone();
        for (device, why) in reasons {
            if self.stolen.insert((device, why)) {
                let name = interface::name(device).unwrap_or_default();
                self.say(&format!(
                    "{name} is stolen from the host, which may need its packets: {why}"
                ));
            }
        }
    }

    /// The likely reason why a copy has not joined. `captures` says whether the copy has a packet
    /// socket.
    pub(super) fn reason(&self, pid: u32, captures: bool) -> String {
        let device = self.run.devices.first().copied().and_then(interface::name);
        let wanted = not_joined::Expected {
            library: self.run.library,
            group: self.run.group,
            device: device.as_deref(),
        };
        not_joined::reason(pid, &wanted, captures)
    }

    fn turn_away(&mut self, outsider: Outsider) {
        let number = outsider.copy;
        let Some(pid) = self.copies[number].pid() else {
            return;
        };
        self.copies[number].questioned = true;
        let matter = self.reason(pid, outsider.group.is_none());
        let place = match outsider.group {
            Some((_, group)) => format!(", in group {group}, of which no other copy is a member"),
            None => String::new(),
        };
        let text = format!("copy {number} did not join and sees ALL packets{place}: {matter}");
        if self.run.arguments.allow_outsiders {
            self.say(&text);
        } else {
            self.abort(format!("{text}. --allow-outsiders lets the copy continue"));
        }
    }
}

/// A copy's packet socket outside the copies' group.
#[derive(Clone, Copy, Debug)]
struct Outsider {
    socket: u32,
    copy: usize,
    /// The device and the number of the socket's group. On XDP, a handle without a group gets a
    /// group of its own.
    group: Option<(u32, u16)>,
}

impl Outsider {
    /// Whether the socket gets packets that sockets of other copies get too. `joined` says whether
    /// some copy has joined the copies' group. Copies that are together in another group, for
    /// example because of /etc/pcap.conf, share that group's packets, so they are not apart.
    fn is_apart_from(&self, all: &[Self], joined: bool) -> bool {
        let Some((device, group)) = self.group else {
            return true;
        };
        let mut others = all.iter().filter(|it| it.copy != self.copy);
        let is_shared = others.clone().any(|it| it.group == self.group);
        let mut is_beside =
            || others.any(|it| it.group.is_some_and(|it| it.0 == device && it.1 != group));
        !is_shared && (joined || is_beside())
    }
}

/// Packet sockets of these copies that are outside the group and may get all packets. `asked` are
/// the copies that have not joined; `foreign` are the sockets that existed before the copies.
fn outside(
    copies: &[(u32, usize)],
    asked: &BTreeSet<usize>,
    run: &Run<'_>,
    foreign: &BTreeSet<u32>,
) -> Vec<Outsider> {
    let seen = roster::entries().unwrap_or_default().into_iter();
    let apart = seen.filter(|it| !it.is_in(run.group) && may_get_all(it, run.devices));
    let apart = apart.filter(|it| !foreign.contains(&it.socket.inode));
    let apart: Vec<RosterEntry> = apart.collect();
    if apart.is_empty() {
        return Vec::new();
    }
    let (open, mut hidden) = descriptors(copies);
    for copies in hidden.values_mut() {
        copies.retain(|copy| asked.contains(copy));
    }
    // Only root can read the descriptors of a process with raised privileges, so the owner of a
    // socket may be unknown. A socket with a page belongs to the process that the page names. A
    // new socket without a page is assigned to a copy of the same user. If several such copies
    // exist, the sockets are assigned to them in turn.
    let mut owner = |seen: &RosterEntry| {
        if let Some(copy) = open.get(&seen.socket.inode) {
            return Some(*copy);
        }
        if let Some(page) = &seen.page {
            return copy_of(page.pid, copies);
        }
        let copies = hidden.get_mut(&seen.socket.user);
        let copies = copies.filter(|copies| !copies.is_empty())?;
        copies.rotate_left(1);
        copies.last().copied()
    };
    let outsider = |seen: RosterEntry| {
        let group = seen.socket.fanout;
        Some(Outsider {
            copy: owner(&seen)?,
            socket: seen.socket.inode,
            group: group.map(|group| (seen.socket.ifindex, group.id)),
        })
    };
    apart.into_iter().filter_map(outsider).collect()
}

/// Maps each open socket to its copy, and each user to the copies whose descriptors are hidden.
fn descriptors(copies: &[(u32, usize)]) -> (BTreeMap<u32, usize>, BTreeMap<u32, Vec<usize>>) {
    let of_copies = stat::pids().filter_map(|pid| Some((pid, copy_of(pid, copies)?)));
    let mut open = BTreeMap::new();
    let mut hidden: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (pid, copy) in of_copies {
        match inodes(pid) {
            Ok(inodes) => open.extend(inodes.into_iter().map(|inode| (inode, copy))),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let copies = user(pid).map(|user| hidden.entry(user).or_default());
                if let Some(copies) = copies.filter(|it| !it.contains(&copy)) {
                    copies.push(copy);
                }
            }
            // The process has just ended.
            Err(_) => {}
        }
    }
    (open, hidden)
}

/// The sockets that a process has open.
fn inodes(pid: u32) -> io::Result<Vec<u32>> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    Ok(descriptors
        .filter_map(|entry| stat::socket(&entry.path()))
        .collect())
}

/// The effective user of a process (proc(5), `Uid`).
fn user(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a socket, or the XDP member that it represents, may get all packets of the copies'
/// devices, or of any device if the copies' devices are unknown. A socket of another protocol, such
/// as ARP, gets few packets. A socket without a protocol gets no packet, and a socket of our
/// library gets no packet before it joins.
fn may_get_all(seen: &RosterEntry, devices: &[u32]) -> bool {
    let socket = &seen.socket;
    let is_there = devices.is_empty() || devices.contains(&socket.ifindex) || socket.ifindex == 0;
    (socket.protocol == ETH_P_ALL || seen.is_on_engine()) && !seen.is_placeholder && is_there
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::netlink::diag::{FanoutGroup, PacketSocket};
    use fanpcap_linux::packet::ETH_P_SILENT;

    #[test]
    fn only_sockets_that_get_all_packets_past_the_group_count() {
        const ETH_P_ARP: u16 = 0x0806;
        let gets = |protocol: u16, ifindex: u32, fanout: Option<FanoutGroup>| {
            let socket = PacketSocket {
                inode: 7,
                ifindex,
                protocol,
                is_running: true,
                fanout,
                version: 2,
                ring: None,
                user: 0,
            };
            let seen = RosterEntry {
                socket,
                page: None,
                founds: None,
                is_placeholder: false,
            };
            may_get_all(&seen, &[2])
        };
        assert!(gets(ETH_P_ALL, 2, None) && gets(ETH_P_ALL, 0, None));
        for protocol in [0, ETH_P_SILENT, ETH_P_ARP] {
            assert!(!gets(protocol, 2, None), "{protocol:#x}");
        }
        assert!(!gets(ETH_P_ALL, 3, None));
        let group = Some(FanoutGroup { id: 5, mode: 0 });
        assert!(gets(ETH_P_ALL, 2, group) && gets(ETH_P_SILENT, 2, group));
        assert!(!gets(ETH_P_ARP, 2, group));
    }

    #[test]
    fn copies_that_share_another_group_are_not_apart() {
        let at = |copy: usize, group| Outsider {
            socket: 7,
            copy,
            group,
        };
        let own = at(0, Some((2, 5)));
        let is_apart = |others: &[Outsider]| own.is_apart_from(&[&[own], others].concat(), false);
        assert!(at(0, None).is_apart_from(&[], false));
        let shares = [own, at(1, Some((2, 5)))];
        assert!(own.is_apart_from(&[own], true) && !own.is_apart_from(&shares, true));
        // The socket is not apart if no other socket exists, or if the other socket is a second
        // handle of the same copy, is on another device, or is in the same group.
        assert!(!is_apart(&[]) && !is_apart(&[at(0, Some((2, 6)))]));
        assert!(!is_apart(&[at(1, Some((3, 6)))]) && !is_apart(&[at(1, Some((2, 5)))]));
        assert!(is_apart(&[at(1, Some((2, 6)))]));
        assert!(!is_apart(&[at(1, Some((2, 5))), at(2, Some((2, 6)))]));
    }
}
