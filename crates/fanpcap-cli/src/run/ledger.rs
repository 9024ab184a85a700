//! What the copies' members received, lost and took: kept while they live, and settled when they end.

mod member;

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use fanpcap::groups::{self, Seen};
use fanpcap_linux::inotify::Removals;
use serde::Serialize;

use member::Member;

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
    removals: Option<Removals>,
    /// What can't be told, and why, if that was just found out.
    complaint: Option<String>,
    /// It was.
    complained: bool,
}

impl Ledger {
    /// The ledger of a group.
    pub(crate) fn new(group: u16) -> Self {
        Self {
            group,
            held: Vec::new(),
            settled: Vec::new(),
            // Without it pages are looked for each time.
            removals: Removals::new().ok(),
            complaint: None,
            complained: false,
        }
    }

    /// What is to be waited for: it is readable when [`Ledger::settle`] has work.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.removals.as_ref().map(AsFd::as_fd)
    }

    /// What can't be told, and why: once.
    pub(crate) fn take_complaint(&mut self) -> Option<String> {
        let complaint = self.complaint.take().filter(|_| !self.complained);
        self.complained |= complaint.is_some();
        complaint
    }

    /// Looks for members that are new and reads what the others have counted. `copies` are the copies'
    /// processes with their numbers.
    pub(crate) fn scan(&mut self, copies: &[(u32, usize)]) {
        match groups::seen() {
            Ok(seen) => self.take_in(seen, copies),
            Err(error) => {
                let complaint = format!(
                    "the copies' counters are unknown: the kernel does not tell of packet sockets ({error})"
                );
                self.complaint = Some(complaint);
            }
        }
        self.settle(true);
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
                    if let (Some(removals), Some(path)) = (&mut self.removals, member.shelf()) {
                        // It may be gone by now: settle() looks for the page itself.
                        let _ = removals.watch(path);
                    }
                    self.complaint = self.complaint.take().or(complaint);
                    self.held.push(member);
                }
            }
        }
    }

    /// Settles the members that have ended. Ours is the last descriptor of their sockets: it is closed at
    /// once, as the kernel would go on giving them packets. `all` looks at each member, whatever was told.
    pub(crate) fn settle(&mut self, all: bool) {
        let gone = self
            .removals
            .as_mut()
            .and_then(|removals| removals.take().ok().flatten());
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
        let accounts = ended
            .into_iter()
            .map(|member| (member.copy(), member.settle()));
        self.settled.extend(accounts);
    }

    /// Settles all: the copies have ended.
    pub(crate) fn close(&mut self) {
        self.settle(true);
        // A process that a copy has left behind goes on with its members.
        let rest = std::mem::take(&mut self.held).into_iter();
        self.settled
            .extend(rest.map(|member| (member.copy(), member.leave_alone())));
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
        self.settled.push((copy, Account::default()));
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

/// The copy that a process belongs to: it is the copy's, of its process group, or a descendant.
pub(crate) fn copy_of(pid: u32, copies: &[(u32, usize)]) -> Option<usize> {
    let of = |pid: u32| {
        copies
            .iter()
            .find(|(of, _)| *of == pid)
            .map(|(_, copy)| *copy)
    };
    let mut pid = pid;
    for _ in 0..DEPTH_MAX {
        if let Some(copy) = of(pid) {
            return Some(copy);
        }
        let (parent, group) = parent_and_group(pid)?;
        if let Some(copy) = of(group) {
            return Some(copy);
        }
        pid = parent;
    }
    None
}

const DEPTH_MAX: usize = 32;

/// Fields 4 and 5 of `/proc/PID/stat`; the name before them may have anything in it (proc(5)).
fn parent_and_group(pid: u32) -> Option<(u32, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
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

    #[test]
    fn processes_belong_to_the_copy_that_started_them() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert_eq!(copy_of(child.id(), &[(own, 5)]), Some(5));
        assert_eq!(copy_of(own, &[(child.id(), 5)]), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
