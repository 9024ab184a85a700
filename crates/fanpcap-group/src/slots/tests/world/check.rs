//! What holds in a simulated group when no change is under way.

use super::{Deposit, World};
use crate::table::{Journal, Row, State};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::BUCKETS;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// What holds when no change is under way.
    pub(in super::super) fn check(&self) {
        if self.kernel.array.is_empty() {
            return;
        }
        let table = self.table();
        assert_eq!(table.journal(), Journal::Nothing);
        let rows: Vec<(Slot, Row)> = table.rows().collect();
        let cookies: Vec<u64> = rows.iter().map(|(_, row)| row.cookie).collect();
        self.check_places(&rows, &cookies);
        for (slot, row) in &rows {
            let is_member = matches!(row.state, State::Live | State::Newcomer);
            let lives = self.kernel.sockets[&row.cookie].is_open;
            assert_eq!(is_member, lives, "{slot:?}: {row:?}");
            assert!(row.state != State::Awaited || row.name != 0, "{row:?}");
        }
        self.check_shares(&rows);
        self.check_seats(&rows);
        let sockets = self.kernel.locker.iter().filter_map(|it| match it {
            Deposit::Socket(cookie) => Some(*cookie),
            Deposit::Lifeline(_) => None,
        });
        let deposited: BTreeSet<u64> = sockets.collect();
        assert_eq!(deposited, cookies.into_iter().collect(), "the locker");
    }

    /// The kernel and the engine agree with the table on who stands where.
    fn check_places(&self, rows: &[(Slot, Row)], cookies: &[u64]) {
        let Some(rings) = &self.kernel.rings else {
            assert_eq!(cookies, self.kernel.array, "table and array differ");
            return;
        };
        let array: BTreeSet<u64> = self.kernel.array.iter().copied().collect();
        assert_eq!(array, cookies.iter().copied().collect(), "the array");
        let is_filled = |row: &Row| !matches!(row.state, State::Inherited | State::Vacant);
        let filled = rows.iter().filter(|(_, row)| is_filled(row));
        let filled: BTreeMap<u8, u64> = filled.map(|(slot, row)| (slot.0, row.cookie)).collect();
        assert_eq!(*rings, filled, "rings");
    }

    fn check_shares(&self, rows: &[(Slot, Row)]) {
        let live = rows.iter().filter(|(_, row)| row.owns());
        let live: Vec<u64> = live.map(|(_, row)| row.cookie).collect();
        let drained = rows.iter().filter(|(_, row)| row.weight == 0);
        let drained: Vec<u64> = drained.map(|(_, row)| row.cookie).collect();
        let owners = self.owners();
        assert!(!owners.iter().any(|owner| drained.contains(owner)));
        for member in &live {
            let owned = owners.iter().filter(|&it| it == member).count();
            let quota = BUCKETS / live.len();
            assert!(owned == quota || owned == quota + 1, "{owned} of {quota}");
        }
        let ranks = self.table().ranks();
        let ranks: BTreeSet<u64> = ranks.iter().map(|slot| self.in_slot(slot.0)).collect();
        assert_eq!(ranks, live.into_iter().collect(), "ranks");
    }

    /// Each packet was had once, or waits in the ring of a member, or went with a group that ended.
    pub(in super::super) fn check_ledger(&self) {
        let rings = self.kernel.sockets.values();
        let waiting: u64 = rings.map(|socket| socket.ring.len() as u64).sum();
        let taken = self.kernel.taken.len() as u64;
        assert_eq!(self.kernel.sent, taken + waiting + self.kernel.ended);
        for (cookie, socket) in &self.kernel.sockets {
            assert!(socket.is_open || socket.ring.is_empty(), "{cookie}");
        }
    }
}
