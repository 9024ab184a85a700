//! What the copies' members received, lost and took: kept while they live, and settled when they
//! end.

mod absence;
mod account;
mod counts;
mod member;
mod leave;
mod missed;
mod owner;
mod unread;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use fanpcap_group::arrivals::{self, Arrivals, Owner};
use fanpcap_group::page::MemberId;
use fanpcap_group::roster::{self, Entry};

use absence::Absences;
pub(crate) use absence::Absent;
pub(crate) use account::Account;
use counts::Counts;
use member::Member;
pub(crate) use owner::copy_of;

/// The members of the copies.
#[derive(Debug)]
pub(crate) struct Ledger {
    group: u16,
    held: Vec<Member>,
    /// Accounts of members that have ended, each with its copy.
    settled: Vec<(usize, Account)>,
    arrivals: Option<Arrivals>,
    absences: Absences,
    /// What the devices had counted. Who came before they were asked last has been held, or was
    /// told of.
    counts: Counts,
    /// Sockets of all members so far.
    known: BTreeSet<MemberId>,
    /// Sockets in the group that have no page.
    pageless: BTreeSet<MemberId>,
    /// One of them was seen twice: members may be there of which nothing is told.
    has_pageless: bool,
    /// The copies' processes that run, with their numbers.
    running: Vec<(u32, usize)>,
    /// Processes of copies so far.
    processes: BTreeMap<u32, usize>,
    /// What can't be told, and why, if that was just found out.
    complaints: Vec<String>,
    /// What was.
    complained: BTreeSet<String>,
    /// Copies of which something was missed.
    missed: BTreeSet<usize>,
}

impl Ledger {
    /// The ledger of a group, on these devices and perhaps others; to be made before the first copy
    /// is started.
    pub(crate) fn new(group: u16, devices: &[u32]) -> Self {
        Self {
            group,
            held: Vec::new(),
            settled: Vec::new(),
            // Without it pages are looked for each time.
            arrivals: Arrivals::of(group).ok(),
            absences: Absences::new(),
            counts: Counts::of(devices),
            known: BTreeSet::new(),
            pageless: BTreeSet::new(),
            has_pageless: false,
            running: Vec::new(),
            processes: BTreeMap::new(),
            complaints: Vec::new(),
            complained: BTreeSet::new(),
            missed: BTreeSet::new(),
        }
    }

    /// A copy has been started.
    pub(crate) fn started(&mut self, pid: u32, copy: usize) {
        self.running.push((pid, copy));
        self.processes.insert(pid, copy);
    }

    /// What is to be waited for: it is readable when [`Ledger::settle`] has work.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.arrivals.as_ref().map(AsFd::as_fd)
    }

    /// What can't be told, and why: once.
    pub(crate) fn take_complaint(&mut self) -> Option<String> {
        while !self.complaints.is_empty() {
            let complaint = self.complaints.remove(0);
            if self.complained.insert(complaint.clone()) {
                return Some(complaint);
            }
        }
        None
    }

    /// Looks for members that are new and reads what the others have counted. `copies` are the
    /// copies' processes with their numbers.
    pub(crate) fn scan(&mut self, copies: &[(u32, usize)]) {
        self.running = copies.to_vec();
        self.settle(true);
        self.count();
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

    /// Asks the devices for what they have counted. Pages that came until then are learned of
    /// before that is noted: so a member that comes and goes unseen has come since.
    fn count(&mut self) {
        let mut counts = self.counts.clone();
        counts.ask_all();
        self.settle(false);
        // Devices that were met meanwhile.
        let met: Vec<u32> = self.counts.last(None).map(|(ifindex, _)| ifindex).collect();
        met.into_iter().for_each(|ifindex| counts.meet(ifindex));
        self.counts = counts;
    }

    fn take_in(&mut self, seen: Vec<Entry>) {
        let mut pageless = BTreeSet::new();
        let group = self.group;
        for entry in seen.into_iter().filter(|it| it.is_in(group)) {
            let id = entry.id();
            let Entry { socket, page } = entry;
            let held = self.held.iter_mut().find(|member| member.id() == id);
            match (held, page) {
                (Some(member), Some(record)) => member.learn(record),
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
        // The page of one that dies goes a moment before its socket.
        self.has_pageless |= !self.pageless.is_disjoint(&pageless);
        self.pageless = pageless;
        self.note_unread();
    }

    /// A page has come: its member is held, if it is a copy's, before the group gives it anything.
    fn welcome(&mut self, owner: Owner) {
        let Owner { ifindex, pid, id } = owner;
        if self.known.contains(&id) {
            return;
        }
        let copy = copy_of(pid, &self.running).or_else(|| self.processes.get(&pid).copied());
        let Some(copy) = copy else {
            if fs::metadata(format!("/proc/{pid}")).is_err() {
                // A descendant of a copy's, of which nobody can tell any more which.
                self.miss_all(Some(ifindex));
            }
            return;
        };
        match Member::hold(copy, (ifindex, self.group), (pid, id)) {
            Some((member, complaint)) => {
                self.known.insert(id);
                self.complaints.extend(complaint);
                self.held.push(member);
            }
            None => self.miss_since(copy, Some(ifindex)),
        }
        self.counts.meet(ifindex);
    }

    /// Settles the members that have ended. Ours is the last descriptor of their sockets: it is
    /// closed at once, as the kernel would go on giving them packets. `all` looks at each member,
    /// whatever was told.
    pub(crate) fn settle(&mut self, all: bool) {
        let gone = self.learn();
        self.end_absences(&[]);
        let left = |path: &PathBuf| match &gone {
            Some(gone) if !all => gone.contains(path),
            _ => fs::symlink_metadata(path).is_err(),
        };
        let mut ended = Vec::new();
        for mut member in std::mem::take(&mut self.held) {
            let gone = member.is_leaving() || left(member.path());
            if member.is_dead() || (gone && member.has_left()) {
                ended.push(member);
            } else {
                self.held.push(member);
            }
        }
        if !ended.is_empty() {
            self.settle_at_once(ended);
        }
    }

    /// The copies are told to end: from now on it is meant that none is there.
    pub(crate) fn end_of_watch(&mut self) {
        self.end_absences(&[]);
        self.absences.are_over();
        for ifindex in self.absences.devices() {
            let counted = fanpcap_linux::netlink::link::packets(ifindex).ok();
            self.complaints.extend(self.absences.end(ifindex, counted));
        }
    }

    /// Times in which no copy was in the group.
    pub(crate) fn absent(&self) -> Absent {
        self.absences.sum()
    }

    /// Learns of pages that came, and returns those that have gone, if that is known.
    fn learn(&mut self) -> Option<BTreeSet<PathBuf>> {
        let news = self.arrivals.as_mut()?.take();
        if news.unseen || news.lost {
            self.miss_all(None);
        }
        for page in news.came.iter().filter_map(|page| arrivals::owner(page)) {
            self.welcome(page);
        }
        (!news.lost).then_some(news.gone)
    }

    /// Settles all: the copies have ended.
    pub(crate) fn close(&mut self) {
        self.settle(true);
        // A process that a copy has left behind goes on with its members.
        let rest = std::mem::take(&mut self.held).into_iter();
        self.settled
            .extend(rest.map(|member| (member.copy(), member.leave_alone())));
        self.tell_least();
    }

    /// Whether a copy has members now.
    pub(crate) fn has_members(&self, copy: usize) -> bool {
        let mut held = self.held.iter();
        held.any(|member| member.copy() == copy && member.rejecting().has_begun)
    }

    /// The devices that the copies have members on.
    pub(crate) fn devices(&self) -> BTreeSet<u32> {
        let begun = self.held.iter().filter(|it| it.rejecting().has_begun);
        begun.map(Member::ifindex).collect()
    }

    /// Whether a member is about to leave.
    pub(crate) fn is_pressed(&self) -> bool {
        self.held.iter().any(Member::is_leaving)
    }

    /// How many members a copy has had.
    pub(crate) fn members(&self, copy: usize) -> usize {
        let settled = self.settled.iter().filter(|(of, _)| *of == copy);
        let held = self.held.iter().filter(|member| member.copy() == copy);
        settled.count() + held.filter(|member| member.rejecting().has_begun).count()
    }

    /// What is known of a copy, all its members and starts together.
    pub(crate) fn account(&self, copy: usize) -> Account {
        let settled = self.settled.iter().filter(|(of, _)| *of == copy);
        let held = self.held.iter().filter(|member| member.copy() == copy);
        let held = held.filter(|member| member.rejecting().has_begun);
        Account::sum(
            settled
                .map(|(_, account)| *account)
                .chain(held.map(Member::account)),
        )
    }
}
