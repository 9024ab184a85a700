//! Whose the members are, and the accounts of those that have ended.

use std::collections::BTreeSet;
use std::fs;
use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_poll::message::SeenSlot;

use super::{Account, PERIOD, PolledLedger, of_ended, of_living};
use crate::ledger::copy_of;

impl PolledLedger {
    /// Settles all members after the copies have ended. Waits at most for `limit` until the poller
    /// has noticed that.
    pub(super) fn close_within(&mut self, limit: Duration) {
        self.absences.is_over = true;
        let end = Instant::now() + limit;
        self.look();
        // A member that has ended between the two questions of a look is in neither reply.
        while !self.owners.is_empty() && Instant::now() < end {
            thread::sleep(PERIOD);
            self.look();
        }
        // The rest is in use by descendants of a copy, or not read to the end by other members.
        for copy in self.settle_rest(Some(0)) {
            self.complaints.push_back(format!(
                "the poller has not told the counters of a handle of copy {copy}: the figures of \
                 the copy are unknown"
            ));
        }
    }

    /// Notes whose the members are that the poller shows.
    pub(super) fn meet(&mut self) {
        let slots: Vec<SeenSlot> = self.slots().copied().collect();
        for slot in slots {
            match self.owner(slot.member, slot.pid) {
                Some(copy) if slot.buckets > 0 => _ = self.had_share.insert(copy),
                None if exists(slot.pid) => {
                    self.has_other_come |= self.others.insert(slot.member);
                }
                Some(_) | None => {}
            }
        }
    }

    /// The copy to which a member belongs.
    fn owner(&mut self, member: u64, pid: u32) -> Option<usize> {
        if let Some(copy) = self.owners.get(&member) {
            return Some(*copy);
        }
        let copy = copy_of(pid, &self.running).or_else(|| self.processes.get(&pid).copied())?;
        self.owners.insert(member, copy);
        Some(copy)
    }

    /// Settles the members that have ended.
    pub(super) fn settle_ended(&mut self) {
        for ended in mem::take(&mut self.watched.ended) {
            self.has_other_come |= !self.stopped.contains(&ended.member);
            match self.owner(ended.member, ended.pid) {
                Some(copy) => {
                    self.owners.remove(&ended.member);
                    self.settled.push((copy, of_ended(&ended)));
                }
                None if self.others.remove(&ended.member) || exists(ended.pid) => {}
                None => self.miss_all(ended.counts.received()),
            }
        }
    }

    /// Notes the packets of a member whose process has ended before it was seen. The process may
    /// have descended from any copy.
    fn miss_all(&mut self, packets: u64) {
        if packets == 0 {
            return;
        }
        let copies: BTreeSet<usize> = match &self.running[..] {
            [] => self.processes.values().copied().collect(),
            running => running.iter().map(|(_, copy)| *copy).collect(),
        };
        for copy in copies {
            self.settled.push((copy, Account::uncounted(Some(packets))));
            self.complaints.push_back(format!(
                "copy {copy} may have had a handle whose process ended before it was seen: the \
                 figures of the copy lack at most {packets} packets of this handle"
            ));
        }
    }

    /// Settles the members that the poller still shows, with this bound of uncounted packets, and
    /// those that have ended without an account. The numbers of the latter are unknown. Returns
    /// their copies.
    pub(super) fn settle_rest(&mut self, uncounted_at_most: Option<u64>) -> Vec<usize> {
        let slots: Vec<SeenSlot> = self.slots().copied().collect();
        for slot in slots {
            if let Some(copy) = self.owners.remove(&slot.member) {
                let account = Account {
                    unread: None,
                    uncounted_at_most,
                    ..of_living(&slot)
                };
                self.settled.push((copy, account));
            }
        }
        let unknown: Vec<usize> = mem::take(&mut self.owners).into_values().collect();
        let accounts = unknown.iter().map(|copy| (*copy, Account::default()));
        self.settled.extend(accounts);
        unknown
    }
}

/// Whether a process exists.
fn exists(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok()
}
