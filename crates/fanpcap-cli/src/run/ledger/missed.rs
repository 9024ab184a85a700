//! Members that could not be held, and copies that never had one.

use std::collections::BTreeSet;

use fanpcap_linux::netlink::link;

use super::{Account, Ledger};

impl Ledger {
    /// A start of a copy has ended without a member that was seen. `is_sure` says that it would
    /// have been seen.
    pub(crate) fn never_joined(&mut self, copy: usize, is_sure: bool) {
        if is_sure && self.arrivals.is_some() && !self.has_pageless {
            self.settled.push((copy, Account::ZERO));
        } else {
            self.miss(copy);
        }
    }

    /// A copy may have had a member that nobody saw: from here on nothing is known of it.
    fn miss(&mut self, copy: usize) {
        self.missed.insert(copy);
        self.settled.push((copy, Account::default()));
    }

    /// A member has come and gone that could not be held: of a copy that runs, nobody knows which.
    pub(super) fn miss_all(&mut self, ifindex: Option<u32>) {
        let copies: BTreeSet<usize> = match &self.running[..] {
            [] => self.processes.values().copied().collect(),
            running => running.iter().map(|(_, copy)| *copy).collect(),
        };
        for copy in copies {
            self.miss_since(copy, ifindex);
        }
    }

    /// The same of this copy, on this device or on any. It has come since the devices were asked
    /// last: they tell what it can have been given at most.
    pub(super) fn miss_since(&mut self, copy: usize, ifindex: Option<u32>) {
        let what = match self.counted_since(ifindex) {
            Some(at_most) => {
                let account = Account {
                    uncounted_at_most: Some(at_most),
                    ..Account::ZERO
                };
                self.settled.push((copy, account));
                format!("leave out at most {at_most} packets by that")
            }
            None => {
                self.miss(copy);
                "are unknown from here on".to_owned()
            }
        };
        self.complaints.push(format!(
            "copy {copy} had a handle that came and went too fast to be looked at: its figures {what}"
        ));
    }

    /// What this device, or all that are known, have counted since they were asked last.
    fn counted_since(&self, ifindex: Option<u32>) -> Option<u64> {
        let since = |(ifindex, before): (u32, u64)| {
            Some(link::packets(ifindex).ok()?.saturating_sub(before))
        };
        let mut since = self.counts.last(ifindex).map(since).peekable();
        since.peek()?;
        since.sum()
    }

    /// Says of each copy of which something was missed what is known nevertheless.
    pub(super) fn tell_least(&mut self) {
        for copy in &self.missed {
            let of_copy = || self.settled.iter().filter(|(of, _)| of == copy);
            let sum = |figure: fn(&Account) -> Option<u64>| -> u64 {
                let figures = of_copy().filter_map(|(_, account)| figure(account));
                // What others have written on their pages may be anything.
                figures.fold(0, u64::saturating_add)
            };
            self.complaints.push(format!(
                "copy {copy}: at least {} packets received, {} dropped, {} taken; not all of its handles were seen",
                sum(|account| account.received),
                sum(|account| account.dropped),
                sum(|account| account.taken)
            ));
        }
    }
}
