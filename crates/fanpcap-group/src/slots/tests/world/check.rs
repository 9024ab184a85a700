//! Checks that a simulated group is consistent when no change is under way.

use super::{StoredFd, World};
use crate::table::{Journal, Row, State};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::BUCKETS;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

impl World {
    pub(in super::super) fn check(&self) {
        if self.kernel.array.is_empty() {
            return;
        }
        let table = self.table();
        assert_eq!(table.journal(), Journal::Nothing);
        // On XDP there may be slots of newcomers that never came.
        let is_hole = |row: &Row| self.kernel.rings.is_some() && row.state == State::Free;
        let rows = table.rows().filter(|(_, row)| !is_hole(row));
        let rows: Vec<(Slot, Row)> = rows.collect();
        let cookies: Vec<u64> = rows.iter().map(|(_, row)| row.cookie).collect();
        self.check_places(&rows, &cookies);
        for (slot, row) in &rows {
            let is_member = matches!(row.state, State::Live | State::Newcomer);
            let lives = self.kernel.sockets[&row.cookie].is_open;
            assert_eq!(is_member, lives, "{slot:?}: {row:?}");
            assert!(row.state != State::Awaited || row.name != 0, "{row:?}");
        }
        // While a founded group without members awaits a successor, its dead members keep their
        // shares: nobody would read what comes for them.
        if !self.members().is_empty() {
            self.check_shares(&rows);
        }
        self.check_sticky_ids(&rows);
        let sockets = self.kernel.fd_store.iter().filter_map(|it| match it {
            StoredFd::Socket(cookie) => Some(*cookie),
            StoredFd::Lifeline(_) => None,
        });
        let deposited: BTreeSet<u64> = sockets.collect();
        assert_eq!(deposited, cookies.into_iter().collect(), "store and rows");
    }

    /// Checks that the kernel and the engine have the members in the table's slots.
    fn check_places(&self, rows: &[(Slot, Row)], cookies: &[u64]) {
        let Some(rings) = &self.kernel.rings else {
            assert_eq!(cookies, self.kernel.array, "table and array differ");
            return;
        };
        let array: BTreeSet<u64> = self.kernel.array.iter().copied().collect();
        assert_eq!(array, cookies.iter().copied().collect(), "array and rows");
        let is_filled = |row: &Row| !matches!(row.state, State::TakenOver | State::Vacant);
        let filled = rows.iter().filter(|(_, row)| is_filled(row));
        let filled: BTreeMap<u8, u64> = filled.map(|(slot, row)| (slot.0, row.cookie)).collect();
        assert_eq!(*rings, filled, "rings and slots");
    }

    fn check_shares(&self, rows: &[(Slot, Row)]) {
        let owners = |class: u8| {
            let of_class = rows.iter().filter(move |(_, row)| row.class == class);
            let owns = of_class.filter(|(_, row)| row.owns());
            owns.map(|(_, row)| row.cookie).collect::<Vec<u64>>()
        };
        let everybody: BTreeSet<u64> = (0..63).flat_map(owners).collect();
        for class in 0..64 {
            self.check_class(class, &owners(class), everybody.is_empty());
        }
        if self.kernel.rings.is_some() && !everybody.is_empty() {
            let ranks = self.in_slots(&self.table().everybody().ranks());
            assert_eq!(ranks, everybody, "ranks of everybody");
        }
    }

    /// Checks that each owner in a class has its share, and that no other member has a bucket.
    fn check_class(&self, class: u8, live: &[u64], has_ended: bool) {
        let part = self.table().part(class);
        let ranks = part.ranks();
        if !has_ended {
            let expected = live.iter().copied().collect();
            assert_eq!(self.in_slots(&ranks), expected, "ranks of {class}");
        }
        let Some(quota) = BUCKETS.checked_div(live.len()) else {
            return;
        };
        let is_balanced = self.table().balance().is_some();
        let slots = part.buckets.iter().map(|it| it.load(Ordering::Relaxed));
        let owners: Vec<u64> = slots.map(|slot| self.in_slot(slot)).collect();
        for member in live {
            let owned = owners.iter().filter(|it| *it == member).count();
            let is_due = owned == quota || owned == quota + 1;
            assert!(is_due || is_balanced, "{owned} of {quota}");
        }
        assert!(owners.iter().all(|owner| live.contains(owner)));
    }

    fn in_slots(&self, slots: &[Slot]) -> BTreeSet<u64> {
        slots.iter().map(|slot| self.in_slot(slot.0)).collect()
    }

    /// Checks that each packet was read once, waits in a member's ring, or ended with its group.
    pub(in super::super) fn check_ledger(&self) {
        let rings = self.kernel.sockets.values();
        let waiting: u64 = rings.map(|socket| socket.ring.len() as u64).sum();
        let taken = self.kernel.taken.len() as u64;
        let lost = self.kernel.ended + self.kernel.no_member + self.kernel.unread;
        assert_eq!(self.kernel.sent, taken + waiting + lost);
        for (cookie, socket) in &self.kernel.sockets {
            assert!(socket.is_open || socket.ring.is_empty(), "{cookie}");
        }
    }
}
