//! Members that could not be held, and copies that never had a member.

use std::collections::BTreeSet;

use fanpcap_linux::netlink::link;

use super::{Account, Ledger};

impl Ledger {
    /// Notes that a copy ended, and that the ledger saw no member of the copy since its last start.
    /// `is_sure` says whether the ledger would have seen a member. The ledger also sees those of a
    /// copy of which it has held a socket.
    pub(crate) fn never_joined(&mut self, copy: usize, is_sure: bool) {
        let is_sure = is_sure || self.met.contains(&copy);
        if is_sure && self.arrivals.is_some() && !self.has_pageless {
            self.settled.push((copy, Account::ZERO));
        } else {
            self.miss(copy);
        }
    }

    /// Notes that a copy may have had an unseen member: the copy's numbers are unknown from now on.
    fn miss(&mut self, copy: usize) {
        self.missed.insert(copy);
        self.settled.push((copy, Account::default()));
    }

    /// Notes a member that joined and left before its socket was held. The member belonged to a
    /// copy, but the ledger does not know to which copy, so it notes the member for every running
    /// copy.
    pub(super) fn miss_all(&mut self, ifindex: Option<u32>) {
        let copies: BTreeSet<usize> = match &self.running[..] {
            [] => self.processes.values().copied().collect(),
            running => running.iter().map(|(_, copy)| *copy).collect(),
        };
        for copy in copies {
            self.miss_since(copy, ifindex);
        }
    }

    /// Notes a member of a copy that joined and left before its socket was held. The member was on
    /// the device `ifindex`, or on any device if `None`. It joined after the last reading of the
    /// devices' counters, so the increase of these counters bounds the member's packets.
    pub(super) fn miss_since(&mut self, copy: usize, ifindex: Option<u32>) {
        self.has_had_members = true;
        self.has_unseen = true;
        let what = match self.counted_since(ifindex) {
            Some(at_most) => {
                let account = Account::uncounted(Some(at_most));
                self.settled.push((copy, account));
                format!("lack at most {at_most} packets of this handle")
            }
            None => {
                self.miss(copy);
                "are unknown from now on".to_owned()
            }
        };
        self.complaints.push(format!(
            "copy {copy} had a handle that was closed before its counters could be read: the figures of the copy {what}"
        ));
    }

    /// Packets that the device `ifindex` has counted since the last reading; for `None`, the sum
    /// over all known devices. The result is `None` if unknown.
    fn counted_since(&self, ifindex: Option<u32>) -> Option<u64> {
        let since = |(ifindex, before): (u32, u64)| {
            Some(link::packets(ifindex).ok()?.saturating_sub(before))
        };
        let mut since = self.counts.last(ifindex).map(since).peekable();
        since.peek()?;
        since.sum()
    }

    /// Reports, for each copy with a missed member, the packets of its other members.
    pub(super) fn tell_least(&mut self) {
        for copy in &self.missed {
            let of_copy = || self.settled.iter().filter(|(of, _)| of == copy);
            let sum = |figure: fn(&Account) -> Option<u64>| -> u64 {
                let figures = of_copy().filter_map(|(_, account)| figure(account));
                // Other users may have written any number on their pages, so the sum must saturate.
                figures.fold(0, u64::saturating_add)
            };
            self.complaints.push(format!(
                "copy {copy}: at least {} packets received, {} dropped, {} taken; the counters of some of its handles are not included",
                sum(|account| account.received),
                sum(|account| account.dropped),
                sum(|account| account.taken)
            ));
        }
    }
}
