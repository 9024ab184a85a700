//! The ledger of the copies' members: packets received, lost and taken. It follows each living
//! member and settles its account when the member ends.

mod absence;
mod account;
mod ceiling;
mod counts;
mod device_names;
mod member;
mod spans;
mod memberless;
mod leave;
mod takers;
mod missed;
mod nowhere;
mod offered;
mod owner;
mod shares;
mod unread;
mod stop;
mod book;
mod polled;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_group::arrivals::{self, Arrivals, Owner};
use fanpcap_group::founder::Founder;
use fanpcap_group::page::MemberId;
use fanpcap_group::record::Record;
use fanpcap_group::roster::{self, RosterEntry};

use absence::Absences;
pub(crate) use absence::Absent;
pub(crate) use account::Account;
pub(crate) use book::Book;
use counts::Counts;
use device_names::{DeviceNames, is_gone};
use member::Member;
use nowhere::Nowhere;
use offered::GroupReadings;
pub(crate) use owner::copy_of;
pub(crate) use polled::{AtPoller, PolledLedger};
use shares::Shares;
use spans::Spans;
pub(crate) use stop::Left;
use takers::Takers;

/// After the last copy's end, the other members of the group get this time to read the rings that
/// the copies left. If a copy's member has a name (`PCAP_MEMBER`), the other members first wait two
/// seconds for its successor.
const TAKERS_WITHIN: Duration = Duration::from_secs(3);

/// Interval of checks whether the other members have read these rings.
const TAKERS_PERIOD: Duration = Duration::from_millis(2);

/// The first member of a copy that has joined.
#[derive(Debug)]
pub(crate) enum First {
    /// The member of this copy has this page.
    Page(usize, Box<Record>),
    /// The member is in a group of a poller.
    Mode {
        /// The poller's engine.
        engine: String,
        /// The group's mode.
        mode: String,
    },
}

/// The ledger of one group that the kernel lists.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    group: u16,
    /// The group, if this command has founded it.
    founder: Option<Arc<Founder>>,
    held: Vec<Member>,
    /// Members of steered groups that have ended, but whose rings other members may still read.
    ended: Vec<Member>,
    takers: Takers,
    /// Accounts of the members that have ended, each with its copy's number.
    settled: Vec<(usize, Account)>,
    arrivals: Option<Arrivals>,
    /// Pages that disappeared since the last check of the members. `None` if notifications were
    /// lost or do not work, so that each page must be checked.
    gone: Option<BTreeSet<PathBuf>>,
    absences: Absences,
    /// The devices' packet counters, as last read. The ledger holds each member that joined before
    /// this reading, or has reported the member as missed.
    counts: Counts,
    /// The counters of groups on XDP.
    offered: GroupReadings,
    /// For each device, the spans of its packet counter that were added to the bound of uncounted
    /// packets because a reading of a member's counters was lost.
    bounded: BTreeMap<u32, Spans>,
    /// For each device, its packet counter when a copy was in the group for the first time.
    begun: BTreeMap<u32, u64>,
    /// For each device, its packet counter when the last absence ended (a time without a copy in
    /// the group).
    resumed: BTreeMap<u32, u64>,
    /// A member that the ledger never saw may have joined before all members that the ledger saw.
    has_unseen: bool,
    shares: Shares,
    /// Sockets of all members that the ledger has held so far.
    known: BTreeSet<MemberId>,
    /// Sockets in the group that had no member page in the last scan.
    pageless: BTreeSet<MemberId>,
    /// A socket without a page was seen in two scans: the group may have members that the ledger
    /// misses.
    has_pageless: bool,
    /// The copies' running processes, with the copies' numbers.
    running: Vec<(u32, usize)>,
    /// All processes that copies have had so far, with the copies' numbers.
    processes: BTreeMap<u32, usize>,
    /// Complaints that are not printed yet. A complaint says which number is unknown, and why.
    complaints: Vec<String>,
    /// Complaints that [`Ledger::take_complaint`] has already returned.
    complained: BTreeSet<String>,
    /// Copies with a member that the ledger missed.
    missed: BTreeSet<usize>,
    /// Copies of which the ledger has held a socket since their last start, whether or not the
    /// socket came into the group.
    met: BTreeSet<usize>,
    /// The group has had a member of a copy.
    has_had_members: bool,
    names: DeviceNames,
    /// Devices on which [`Ledger::stop`] has stopped the packets of the whole group.
    stopped: BTreeSet<u32>,
    nowhere: Nowhere,
}

impl Ledger {
    /// The ledger of `group` on `devices`, and on other devices where members appear. Create it
    /// before the first copy starts, so that it sees all members.
    /// `founder` is the group, if this command has founded it.
    pub(crate) fn new(group: u16, devices: &[u32], founder: Option<Arc<Founder>>) -> Self {
        let mut ledger = Self {
            group,
            // Without notifications, each scan searches the directories for pages.
            arrivals: Arrivals::of(group).ok(),
            counts: Counts::of(devices),
            ..Self::default()
        };
        ledger.found(founder);
        ledger
    }

    /// The group, if this command has founded it.
    pub(crate) fn founder(&self) -> Option<&Founder> {
        self.founder.as_deref()
    }

    /// Notes that this command has founded the group, or again on a device that has come back.
    pub(crate) fn found(&mut self, founder: Option<Arc<Founder>>) {
        founder.iter().for_each(|it| self.nowhere.of_founder(it));
        self.founder = founder;
    }

    pub(crate) fn started(&mut self, pid: u32, copy: usize) {
        self.running.push((pid, copy));
        self.processes.insert(pid, copy);
        self.met.remove(&copy);
    }

    /// The descriptors to wait for. One is readable when [`Ledger::settle`] has work.
    pub(crate) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let arrivals = self.arrivals.as_ref().map(AsFd::as_fd);
        let ends = self.held.iter().filter_map(Member::end);
        arrivals.into_iter().chain(ends).collect()
    }

    /// The next complaint. Returns each complaint once.
    pub(crate) fn take_complaint(&mut self) -> Option<String> {
        while !self.complaints.is_empty() {
            let complaint = self.complaints.remove(0);
            if self.complained.insert(complaint.clone()) {
                return Some(complaint);
            }
        }
        None
    }

    /// Finds new members and reads the counters of the known members. `copies` are the copies'
    /// processes with the copies' numbers.
    pub(crate) fn scan(&mut self, copies: &[(u32, usize)]) {
        self.running = copies.to_vec();
        self.settle(true);
        self.names.refresh();
        self.count();
        self.read_offered();
        match roster::entries() {
            Ok(seen) => self.take_in(seen),
            Err(error) => {
                let complaint = format!(
                    "the copies' counters are unknown: the kernel does not tell of packet sockets ({error})"
                );
                self.complaints.push(complaint);
            }
        }
    }

    /// Reads the devices' counters, then processes new pages, and only then replaces the last
    /// counts. So if a page shows a member that joined and left unseen, the last counts are from a
    /// time before that member's join, and bound its packets.
    fn count(&mut self) {
        let mut counts = self.counts.clone();
        counts.ask_all();
        self.settle(false);
        // The new pages may have added devices meanwhile.
        let met: Vec<u32> = self.counts.last(None).map(|(ifindex, _)| ifindex).collect();
        met.into_iter().for_each(|ifindex| counts.meet(ifindex));
        self.counts = counts;
    }

    fn take_in(&mut self, seen: Vec<RosterEntry>) {
        let mut pageless = BTreeSet::new();
        let group = self.group;
        // Skip placeholders: the former member of a placeholder belonged to no copy, or the ledger
        // has settled that member.
        let seen = seen.into_iter().filter(|it| !it.is_placeholder);
        for entry in seen.filter(|it| it.is_in(group)) {
            let id = entry.id();
            let RosterEntry { socket, page, .. } = entry;
            let held = self.held.iter_mut().find(|member| member.id == id);
            match (held, page) {
                (Some(member), Some(record)) => {
                    member.record = record;
                    member.hold_page_again(group);
                }
                (Some(_), None) => {}
                (None, Some(record)) => self.welcome(Owner {
                    ifindex: socket.ifindex,
                    pid: record.pid,
                    id,
                }),
                (None, None) if self.known.contains(&id) => {}
                (None, None) => _ = pageless.insert(id),
            }
        }
        // When a member's process dies, the member's page disappears a moment before its socket. So
        // only a socket that has no page in two scans shows that the ledger misses a member.
        self.has_pageless |= !self.pageless.is_disjoint(&pageless);
        self.pageless = pageless;
        self.note_shares();
        self.note_unread();
    }

    /// Processes a page that has appeared. If its member belongs to a copy, the ledger holds the
    /// member before the group gives packets to that member.
    fn welcome(&mut self, owner: Owner) {
        let Owner { ifindex, pid, id } = owner;
        if self.known.contains(&id) {
            let held = self.held.iter_mut().find(|member| member.id == id);
            held.into_iter()
                .for_each(|it| it.hold_page_again(self.group));
            return;
        }
        let copy = copy_of(pid, &self.running).or_else(|| self.processes.get(&pid).copied());
        let Some(copy) = copy else {
            if fs::metadata(format!("/proc/{pid}")).is_err() {
                // The member's process has ended. It may have descended from any copy: the kernel
                // no longer records its parent.
                self.miss_all(Some(ifindex));
            }
            return;
        };
        self.has_had_members = true;
        self.names.note(copy, ifindex);
        match Member::hold(copy, (ifindex, self.group), (pid, id)) {
            Some((member, complaint)) => {
                self.known.insert(id);
                self.met.insert(copy);
                self.complaints.extend(complaint);
                self.held.push(member);
            }
            None => self.miss_since(copy, Some(ifindex)),
        }
        self.counts.meet(ifindex);
    }

    /// Settles the members that have ended. This process holds the last descriptor of their sockets
    /// and closes it at once, because the kernel still gives packets to those sockets. For members
    /// of steered groups, first waits until other members have read the rings of the ended members.
    /// With `all`, checks every member, even if no notification says that its page is gone.
    pub(crate) fn settle(&mut self, all: bool) {
        self.learn();
        self.hold_nowhere();
        let gone = self.gone.replace(BTreeSet::new());
        self.end_absences(&[]);
        let left = |path: &PathBuf| match &gone {
            Some(gone) if !all => gone.contains(path),
            _ => fs::symlink_metadata(path).is_err(),
        };
        let mut ended = Vec::new();
        for mut member in std::mem::take(&mut self.held) {
            let gone = member.is_leaving() || left(&member.path);
            if !(member.is_dead() || (gone && member.has_left())) {
                self.held.push(member);
                continue;
            }
            member.read_page();
            self.hold_known(slice::from_mut(&mut member));
            self.note_nowhere_of(&member);
            if !member.is_steered() {
                ended.push(member);
            } else if member.is_had() {
                self.held.push(member);
            } else {
                self.ended.push(member);
            }
        }
        ended.extend(self.settle_inherited());
        if !ended.is_empty() {
            self.settle_at_once(ended);
        }
    }

    /// Notes that this command has sent the copies a signal to end: from now on an empty group is
    /// intended, and no absence begins.
    pub(crate) fn end_of_watch(&mut self) {
        self.end_absences(&[]);
        self.absences.is_over = true;
        for ifindex in self.absences.devices() {
            let gone = self.names.name(ifindex).filter(|_| is_gone(ifindex));
            let counted = match gone {
                Some(_) => Some(0),
                None => fanpcap_linux::netlink::link::packets(ifindex).ok(),
            };
            self.complaints
                .extend(self.absences.end(ifindex, counted, gone));
        }
    }

    /// All absences together: the times without any copy in the group.
    pub(crate) fn absent(&self) -> Absent {
        self.absences.sum
    }

    /// Processes the pages that appeared and disappeared.
    fn learn(&mut self) {
        let Some(news) = self.arrivals.as_mut().map(Arrivals::take) else {
            self.gone = None;
            return;
        };
        if news.unseen || news.lost {
            self.miss_all(None);
        }
        for page in news.came.iter().filter_map(|page| arrivals::owner(page)) {
            self.welcome(page);
        }
        match &mut self.gone {
            Some(gone) if !news.lost => gone.extend(news.gone),
            gone => *gone = None,
        }
    }

    /// Settles all members after the copies have ended.
    pub(crate) fn close(&mut self) {
        self.absences.is_over = true;
        self.settle(true);
        let end = Instant::now() + TAKERS_WITHIN;
        while !self.ended.is_empty() && Instant::now() < end {
            thread::sleep(TAKERS_PERIOD);
            self.settle(true);
        }
        // The remaining members are in use by descendants of a copy, or have rings that the other
        // members of the group have not read to the end.
        let held = std::mem::take(&mut self.held);
        held.iter().for_each(|it| self.note_nowhere_of(it));
        let rest = held.into_iter().chain(std::mem::take(&mut self.ended));
        self.settled
            .extend(rest.map(|member| (member.copy, member.leave_alone())));
        self.tell_least();
    }

    /// Whether a copy now has a member that is in the group or is joining it.
    pub(crate) fn has_members(&self, copy: usize) -> bool {
        let mut held = self.held.iter();
        held.any(|member| member.copy == copy && member.rejecting().has_begun)
    }

    /// Whether the group has had no member of a copy, as far as the ledger can see.
    pub(crate) fn had_no_members(&self) -> bool {
        !self.has_had_members && !self.has_pageless
    }

    /// A member that has joined the group, with its copy; `None` while no member has joined.
    pub(crate) fn first(&mut self) -> Option<(usize, Record)> {
        let mut joined = self.held.iter_mut().filter(|member| member.has_joined());
        let first = joined.next()?;
        first.read_page();
        Some((first.copy, first.record.clone()))
    }

    /// The devices on which the copies have members.
    pub(crate) fn devices(&self) -> BTreeSet<u32> {
        let begun = self.held.iter().filter(|it| it.rejecting().has_begun);
        begun.map(|it| it.ifindex).collect()
    }

    /// The devices of a copy that has ended, if one of them is gone. A device that has come back
    /// with another index was gone; each such index counts for one end of the copy.
    pub(crate) fn lost_devices(&mut self, copy: usize) -> BTreeSet<String> {
        self.names.lost(copy)
    }

    /// The devices that copies steal from the host (`steal = yes`) unless the host uses them.
    pub(crate) fn stolen(&self) -> BTreeSet<u32> {
        let stealing = self.held.iter().filter(|it| it.record.steals);
        stealing.map(|it| it.ifindex).collect()
    }

    /// Whether [`Ledger::settle`] must be called again soon: a member is about to leave, or other
    /// members are reading the ring of an ended member to the end.
    pub(crate) fn is_pressed(&self) -> bool {
        let mut ended = self.ended.iter();
        ended.any(Member::awaits_takers) || self.held.iter().any(Member::is_leaving)
    }

    /// The number of members that a copy has had.
    pub(crate) fn members(&self, copy: usize) -> usize {
        let settled = self.settled.iter().filter(|(of, _)| *of == copy);
        let held = self.held.iter().chain(&self.ended);
        let held = held.filter(|member| member.copy == copy);
        settled.count() + held.filter(|member| member.rejecting().has_begun).count()
    }

    /// A copy's account: the sum over all members that the copy has had since its first start.
    pub(crate) fn account(&self, copy: usize) -> Account {
        let settled = self.settled.iter().filter(|(of, _)| *of == copy);
        let held = self.held.iter().chain(&self.ended);
        let held = held.filter(|member| member.copy == copy && member.rejecting().has_begun);
        Account::sum(
            settled
                .map(|(_, account)| *account)
                .chain(held.map(Member::account)),
        )
    }
}
