//! A group that a process has founded: it outlives its members.

use super::World;
use crate::table::FinalCounters;

/// The founder has no socket in the group.
const FOUNDER: u64 = 0;

impl World {
    pub(in super::super) fn founded(seed: u64) -> Self {
        Self {
            has_founder: true,
            ..Self::new(seed)
        }
    }

    /// The founder settles the members that are gone, if no member is left. Returns whether the
    /// group had no member and awaited none.
    pub(in super::super) fn settle_by_founder(&mut self) -> bool {
        let is_memberless = self.change(FOUNDER, |slots| slots.is_memberless(true));
        if !is_memberless.unwrap() {
            return false;
        }
        for slot in self.change(FOUNDER, |slots| slots.stop_gone()).unwrap() {
            let cookie = self.table().row(slot).cookie;
            self.give_up(cookie);
            let socket = &self.kernel.sockets[&cookie];
            let gone = FinalCounters {
                members: 1,
                received: socket.received,
                taken: socket.taken,
                ..FinalCounters::default()
            };
            let vacated = self.change(FOUNDER, |slots| slots.vacate(cookie, &gone));
            vacated.unwrap();
        }
        self.takers.clear();
        true
    }

    /// The founder completes a change that the last member left unfinished.
    pub(super) fn repair_by_founder(&mut self) {
        if self.has_founder && self.members().is_empty() {
            let repaired = self.change(FOUNDER, |slots| slots.is_memberless(true));
            repaired.unwrap();
        }
    }

    /// In one of two cases, the founder looks after a group without members.
    pub(super) fn may_settle_by_founder(&mut self) {
        let comes = self.has_founder && self.members().is_empty() && self.kernel.random(2) == 0;
        if comes && self.settle_by_founder() {
            assert!(self.kernel.array.is_empty(), "sockets are left");
            assert_eq!(self.table().positions(), 0);
        }
    }
}
