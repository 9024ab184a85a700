//! What the copies' members received, lost and took: kept while they live, and settled when they end.

mod arrivals;
mod member;
mod owner;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread;

use fanpcap::groups::{self, Seen};
use serde::Serialize;

use arrivals::Arrivals;
use member::Member;
pub(crate) use owner::copy_of;

/// Packets; none where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Account {
    /// Given to the members, those dropped included.
    pub(crate) received: Option<u64>,
    /// Dropped by the kernel, as a ring was full.
    pub(crate) dropped: Option<u64>,
    /// Taken from the ring and handed to the program.
    pub(crate) taken: Option<u64>,
    /// Left in the ring when the member ended.
    pub(crate) unread: Option<u64>,
    /// Sent to the member's place in the group after its end, until that was free.
    pub(crate) refused: Option<u64>,
}

impl Account {
    /// The sum: unknown when a part is.
    pub(crate) fn plus(self, other: Self) -> Self {
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        Self {
            received: sum(self.received, other.received),
            dropped: sum(self.dropped, other.dropped),
            taken: sum(self.taken, other.taken),
            unread: sum(self.unread, other.unread),
            refused: sum(self.refused, other.refused),
        }
    }

    /// The sum of all; unknown when there are none.
    pub(crate) fn sum(accounts: impl Iterator<Item = Self>) -> Self {
        accounts.reduce(Self::plus).unwrap_or_default()
    }
}

/// The members of the copies.
#[derive(Debug)]
pub(crate) struct Ledger {
    group: u16,
    held: Vec<Member>,
    /// Accounts of members that have ended, each with its copy.
    settled: Vec<(usize, Account)>,
    arrivals: Option<Arrivals>,
    /// Pages that came and belong to no member that is known.
    came: BTreeSet<PathBuf>,
    /// Some came since the last scan.
    news: bool,
    /// Pages came of which nothing more is known.
    unseen: bool,
    /// Sockets of all members so far.
    known: BTreeSet<u64>,
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
    /// The ledger of a group; to be made before the first copy is started.
    pub(crate) fn new(group: u16) -> Self {
        Self {
            group,
            held: Vec::new(),
            settled: Vec::new(),
            // Without it pages are looked for each time.
            arrivals: Arrivals::of(group).ok(),
            came: BTreeSet::new(),
            news: false,
            unseen: false,
            known: BTreeSet::new(),
            processes: BTreeMap::new(),
            complaints: Vec::new(),
            complained: BTreeSet::new(),
            missed: BTreeSet::new(),
        }
    }

    /// What is to be waited for: it is readable when [`Ledger::settle`] has work.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.arrivals.as_ref().map(AsFd::as_fd)
    }

    /// Whether [`Ledger::scan`] has work before its time: pages came, and may go soon.
    pub(crate) fn has_news(&self) -> bool {
        self.news
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

    /// Looks for members that are new and reads what the others have counted. `copies` are the copies'
    /// processes with their numbers.
    pub(crate) fn scan(&mut self, copies: &[(u32, usize)]) {
        self.news = false;
        self.processes.extend(copies.iter().copied());
        match groups::seen() {
            Ok(seen) => self.take_in(seen, copies),
            Err(error) => {
                let complaint = format!(
                    "the copies' counters are unknown: the kernel does not tell of packet sockets ({error})"
                );
                self.complaints.push(complaint);
            }
        }
        self.judge(copies);
        self.settle(true);
    }

    /// Whose the pages are that came and belong to no known member: what they counted is unknown when they
    /// have gone.
    fn judge(&mut self, copies: &[(u32, usize)]) {
        let all = || self.processes.values().copied().collect::<Vec<_>>();
        let running = match copies {
            [] => all(),
            _ => copies.iter().map(|(_, copy)| *copy).collect(),
        };
        let mut missed = Vec::new();
        for path in std::mem::take(&mut self.came) {
            let Some((pid, inode)) = arrivals::owner(&path) else {
                continue;
            };
            if self.known.contains(&inode) {
                continue;
            }
            let copy = copy_of(pid, copies).or_else(|| self.processes.get(&pid).copied());
            let lives = Path::new(&format!("/proc/{pid}")).exists();
            match copy {
                // It is not in its group yet, or the kernel could not be asked.
                Some(_) if path.exists() => {
                    self.came.insert(path);
                }
                Some(copy) => missed.push(copy),
                // Somebody else's.
                None if lives => {}
                // A descendant of a copy's, of which nobody can tell any more which.
                None => missed.extend(&running),
            }
        }
        if std::mem::take(&mut self.unseen) {
            missed.extend(&running);
        }
        missed.sort_unstable();
        missed.dedup();
        for copy in missed {
            self.miss(copy);
            self.complaints.push(format!(
                "copy {copy} had a handle that came and went too fast to be looked at: its figures are unknown from here on"
            ));
        }
    }

    fn take_in(&mut self, seen: Vec<Seen>, copies: &[(u32, usize)]) {
        for Seen { socket, page } in seen {
            let in_group = socket.fanout.is_some_and(|fanout| fanout.id == self.group);
            let (true, Some(record)) = (in_group, page) else {
                continue;
            };
            let inode = u64::from(socket.inode);
            match self.held.iter_mut().find(|member| member.inode() == inode) {
                Some(member) => member.learn(record),
                None => {
                    let Some(copy) = copy_of(record.pid, copies) else {
                        continue;
                    };
                    let (member, complaint) =
                        Member::hold(copy, socket.ifindex, self.group, inode, record);
                    self.known.insert(inode);
                    self.complaints.extend(complaint);
                    self.held.push(member);
                }
            }
        }
    }

    /// Settles the members that have ended. Ours is the last descriptor of their sockets: it is closed at
    /// once, as the kernel would go on giving them packets. `all` looks at each member, whatever was told.
    pub(crate) fn settle(&mut self, all: bool) {
        let gone = self.learn();
        let left = |path: Option<&PathBuf>| match (&gone, path) {
            (Some(gone), Some(path)) if !all => gone.contains(path),
            (_, Some(path)) => fs::symlink_metadata(path).is_err(),
            (_, None) => false,
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
        self.settle_at_once(ended);
    }

    /// Settles members, each on a thread: they refuse packets from now on all together, and the kernel makes them wait
    /// for what is in flight only once. One that lives on in a child stays, and is looked after each time.
    fn settle_at_once(&mut self, mut ended: Vec<Member>) {
        let accounts: Vec<Option<Account>> = thread::scope(|scope| {
            let begin =
                |member| thread::Builder::new().spawn_scoped(scope, || Member::settle(member));
            let threads: Vec<_> = ended.iter_mut().map(begin).collect();
            // Without a thread, it is tried again.
            let account = |thread: io::Result<thread::ScopedJoinHandle<'_, _>>| {
                thread.ok()?.join().unwrap_or_default()
            };
            threads.into_iter().map(account).collect()
        });
        for (member, account) in ended.into_iter().zip(accounts) {
            match account {
                Some(account) => self.settled.push((member.copy(), account)),
                None => self.held.push(member),
            }
        }
    }

    /// Learns of pages that came, and returns those that have gone, if that is known.
    fn learn(&mut self) -> Option<BTreeSet<PathBuf>> {
        let news = self.arrivals.as_mut()?.take();
        self.news |= !news.came.is_empty() || news.unseen || news.lost;
        self.unseen |= news.unseen || news.lost;
        self.came.extend(news.came);
        (!news.lost).then_some(news.gone)
    }

    /// Settles all: the copies have ended.
    pub(crate) fn close(&mut self) {
        self.settle(true);
        self.judge(&[]);
        // A process that a copy has left behind goes on with its members.
        let rest = std::mem::take(&mut self.held).into_iter();
        self.settled
            .extend(rest.map(|member| (member.copy(), member.leave_alone())));
        self.tell_least();
    }

    /// Whether a copy has members now.
    pub(crate) fn has_members(&self, copy: usize) -> bool {
        self.held.iter().any(|member| member.copy() == copy)
    }

    /// Whether a member is about to leave.
    pub(crate) fn is_pressed(&self) -> bool {
        self.held.iter().any(Member::is_leaving)
    }

    /// How many members a copy has had.
    pub(crate) fn members(&self, copy: usize) -> usize {
        let settled = self.settled.iter().filter(|(of, _)| *of == copy);
        let held = self.held.iter().filter(|member| member.copy() == copy);
        settled.count() + held.count()
    }

    /// A copy may have had a member that nobody saw: from here on nothing is known of it.
    pub(crate) fn miss(&mut self, copy: usize) {
        self.missed.insert(copy);
        self.settled.push((copy, Account::default()));
    }

    /// Says of each copy of which something was missed what is known nevertheless.
    fn tell_least(&mut self) {
        for copy in &self.missed {
            let of_copy = || self.settled.iter().filter(|(of, _)| of == copy);
            let sum = |figure: fn(&Account) -> Option<u64>| -> u64 {
                of_copy().filter_map(|(_, account)| figure(account)).sum()
            };
            self.complaints.push(format!(
                "copy {copy}: at least {} packets received, {} dropped, {} taken; not all of its handles were seen",
                sum(|account| account.received),
                sum(|account| account.dropped),
                sum(|account| account.taken)
            ));
        }
    }

    /// What is known of a copy, all its members and starts together.
    pub(crate) fn account(&self, copy: usize) -> Account {
        let settled = self.settled.iter().filter(|(of, _)| *of == copy);
        let held = self.held.iter().filter(|member| member.copy() == copy);
        Account::sum(
            settled
                .map(|(_, account)| *account)
                .chain(held.map(Member::account)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parts_make_unknown_sums() {
        let known = Account {
            received: Some(3),
            dropped: Some(1),
            ..Account::default()
        };
        let sum = Account::sum([known, known].into_iter());
        assert_eq!(
            (sum.received, sum.dropped, sum.taken),
            (Some(6), Some(2), None)
        );
        assert_eq!(Account::sum(std::iter::empty()), Account::default());
        assert_eq!(known.plus(Account::default()).received, None);
    }
}
