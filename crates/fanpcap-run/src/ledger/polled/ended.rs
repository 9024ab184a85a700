//! Settles the accounts of members.

use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_poll::message::SeenSlot;

use super::{Account, PERIOD, PolledLedger, of_ended, of_living};

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

    /// Settles the members that have ended.
    pub(super) fn settle_ended(&mut self) {
        for ended in mem::take(&mut self.watched.ended) {
            if let Some(copy) = self.owner(ended.member, ended.pid) {
                self.owners.remove(&ended.member);
                self.settled.push((copy, of_ended(&ended)));
            }
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
