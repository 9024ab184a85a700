//! Which copies have joined the group, and which copies capture outside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fanpcap_group::roster;
use fanpcap_linux::bpf;
use fanpcap_linux::interface;
use fanpcap_linux::netlink::diag::PacketSocket;
use fanpcap_linux::packet::ETH_P_ALL;

use super::Watch;
use crate::run::ledger::copy_of;
use crate::run::not_joined;

/// Interval of searches for outsiders.
const PERIOD: Duration = Duration::from_secs(1);

/// Copies that have no member, but a packet socket that gets all packets.
#[derive(Debug, Default)]
pub(super) struct Outsiders {
    looked: Option<Instant>,
    /// Sockets of the last search. A socket that exists only for a moment may just query the
    /// device.
    sockets: BTreeSet<u32>,
    /// Copies that were reported.
    said: BTreeSet<usize>,
    /// Sockets that were there before the copies.
    foreign: BTreeSet<u32>,
}

impl Outsiders {
    /// Nobody was looked for, and no copy has been started.
    pub(super) fn new() -> Self {
        let seen = roster::entries().unwrap_or_default().into_iter();
        Self {
            foreign: seen.map(|seen| seen.socket.inode).collect(),
            ..Self::default()
        }
    }
}

impl Watch<'_> {
    /// Notes the mode of the group once a copy has joined it, and says if that is another one than
    /// was announced: the library has decided by what the copy may do.
    pub(super) fn note_mode(&mut self) {
        if self.mode.is_some() {
            return;
        }
        let Some((copy, record)) = self.ledger.first() else {
            return;
        };
        let (has, expected) = (record.shown_mode(), &self.run.fanout.text);
        let (program, pid) = (&record.program, record.pid);
        let is_other = self.run.fanout.asked.is_none() && has != *expected;
        if is_other && !self.run.is_quiet {
            let why = match bpf::may_load(pid) {
                Some(false) => format!(
                    ": copy {copy}, process {pid} ({program}), has given up CAP_BPF, which {expected} takes"
                ),
                _ => String::new(),
            };
            let group = self.run.group;
            self.run
                .output
                .say(&format!("group {group} has {has}, not {expected}{why}"));
        }
        self.mode = Some(has);
    }

    /// Prints once that all copies have joined.
    pub(super) fn say_who_joined(&mut self) {
        let all = |watch: &Self| {
            let mut copies = watch.copies.iter();
            copies.all(|copy| watch.ledger.has_members(copy.number))
        };
        if self.has_said_joined || self.run.is_quiet || !all(self) {
            return;
        }
        self.has_said_joined = true;
        let name = |ifindex: u32| match ifindex {
            0 => Some("any".to_owned()),
            index => interface::name(index),
        };
        let devices: Vec<String> = self.ledger.devices().into_iter().filter_map(name).collect();
        let copies = match self.copies.len() {
            1 => "1 copy".to_owned(),
            copies => format!("{copies} copies"),
        };
        self.run.output.say(&format!(
            "in group {}, {}, on {}: {copies}",
            self.run.group,
            self.mode.as_ref().unwrap_or(&self.run.fanout.text),
            devices.join(", ")
        ));
    }

    /// Whether copies were there for long enough to join, and none has ever joined.
    pub(super) fn has_none_joined(&self) -> bool {
        let is_asked = self.copies.iter().any(|copy| copy.questioned);
        is_asked && !self.run.allow_outsiders && self.ledger.had_no_members()
    }

    /// Ends the run if a copy sees all packets, unless --allow-outsiders is given.
    pub(super) fn look_for_outsiders(&mut self) {
        let early = |looked: Instant| looked.elapsed() < PERIOD;
        if self.stopped.is_some() || self.outsiders.looked.is_some_and(early) {
            return;
        }
        self.outsiders.looked = Some(Instant::now());
        let apart = self.copies.iter().filter(|copy| {
            let joined = self.ledger.has_members(copy.number);
            !joined && !self.outsiders.said.contains(&copy.number)
        });
        let apart = apart.filter_map(|copy| Some((copy.pid()?, copy.number)));
        let apart: Vec<(u32, usize)> = apart.collect();
        let found = if apart.is_empty() {
            Vec::new()
        } else {
            outside(&apart, self.run.devices, &self.outsiders.foreign)
        };
        let before = std::mem::take(&mut self.outsiders.sockets);
        for (socket, copy) in found {
            self.outsiders.sockets.insert(socket);
            if before.contains(&socket) && self.outsiders.said.insert(copy) {
                self.turn_away(copy);
            }
        }
    }

    /// Says once that the host has begun to use a device whose packets it does not get.
    pub(super) fn look_at_host(&mut self) {
        let reasons = self.host_use.look(self.ledger.stolen());
        for (&device, &why) in reasons {
            if self.stolen.insert((device, why)) {
                let name = interface::name(device).unwrap_or_default();
                self.run.output.say(&format!(
                    "{name} is stolen from the host, which may need its packets: {why}"
                ));
            }
        }
    }

    /// The likely reason why a copy has not joined. `captures`: it has a packet socket.
    pub(super) fn reason(&self, pid: u32, captures: bool) -> String {
        let device = self.run.devices.first().copied().and_then(interface::name);
        let wanted = not_joined::Wanted {
            library: self.run.library,
            group: self.run.group,
            device: device.as_deref(),
        };
        not_joined::reason(pid, &wanted, captures)
    }

    fn turn_away(&mut self, number: usize) {
        let Some(pid) = self.copies[number].pid() else {
            return;
        };
        self.copies[number].questioned = true;
        let matter = self.reason(pid, true);
        let text = format!("copy {number} did not join and sees ALL packets: {matter}");
        if self.run.allow_outsiders {
            self.run.output.say(&text);
        } else {
            self.abort(format!("{text}. --allow-outsiders lets it go on"));
        }
    }
}

/// Packet sockets of these copies that get all packets outside the group, each with its copy's
/// number. `foreign` were there before the copies.
fn outside(copies: &[(u32, usize)], devices: &[u32], foreign: &BTreeSet<u32>) -> Vec<(u32, usize)> {
    let seen = roster::entries().unwrap_or_default().into_iter();
    let alone = seen.map(|seen| seen.socket);
    let alone = alone.filter(|it| gets_all(it, devices) && !foreign.contains(&it.inode));
    let sockets: BTreeMap<u32, u32> = alone.map(|it| (it.inode, it.user)).collect();
    if sockets.is_empty() {
        return Vec::new();
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of_copies = pids.filter_map(|pid| Some((pid, copy_of(pid, copies)?)));
    let (mut found, mut hidden) = (Vec::new(), Vec::new());
    for (pid, copy) in of_copies {
        match inodes(pid) {
            Ok(inodes) => found.extend(inodes.into_iter().map(|inode| (inode, copy))),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                hidden.extend(user(pid).map(|user| (user, copy)));
            }
            // It has just ended.
            Err(_) => {}
        }
    }
    found.retain(|(inode, _)| sockets.contains_key(inode));
    // A process with file capabilities shows its descriptors to root alone. A socket that its user
    // has opened since is taken for its own.
    let known: BTreeSet<u32> = found.iter().map(|(inode, _)| *inode).collect();
    let others = sockets.iter().filter(|(inode, _)| !known.contains(inode));
    let owner = |user: u32| hidden.iter().find(|(it, _)| *it == user);
    let others = others.filter_map(|(inode, user)| Some((*inode, owner(*user)?.1)));
    found.extend(others);
    found
}

/// The sockets that a process has open.
fn inodes(pid: u32) -> io::Result<Vec<u32>> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    let inode = |target: PathBuf| {
        let inode = target.to_str()?.strip_prefix("socket:[")?;
        inode.strip_suffix(']')?.parse::<u32>().ok()
    };
    Ok(targets.filter_map(inode).collect())
}

/// The effective user of a process (proc(5), `Uid`).
fn user(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a socket gets all packets of the copies' devices, or of any device if these are unknown.
/// A socket of another protocol, such as ARP's, gets few packets. A socket without a protocol gets
/// none, and neither does a socket of our library that is about to join.
fn gets_all(socket: &PacketSocket, devices: &[u32]) -> bool {
    let is_there = devices.is_empty() || devices.contains(&socket.ifindex) || socket.ifindex == 0;
    socket.fanout.is_none() && socket.protocol == ETH_P_ALL && is_there
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::netlink::diag::FanoutGroup;
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
            gets_all(&socket, &[2])
        };
        assert!(gets(ETH_P_ALL, 2, None) && gets(ETH_P_ALL, 0, None));
        for protocol in [0, ETH_P_SILENT, ETH_P_ARP] {
            assert!(!gets(protocol, 2, None), "{protocol:#x}");
        }
        assert!(!gets(ETH_P_ALL, 3, None));
        assert!(!gets(ETH_P_ALL, 2, Some(FanoutGroup { id: 5, mode: 0 })));
    }
}
