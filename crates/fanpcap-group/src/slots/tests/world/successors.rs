//! Members with names, and their successors.

use super::World;
use crate::slots::succession::GRACE_NS;
use crate::table::{Row, State};

impl World {
    /// A new socket of a named member.
    pub(in super::super) fn open_named(&mut self, name: u64) -> u64 {
        let cookie = self.open();
        self.names.insert(cookie, name);
        cookie
    }

    /// The member that a newcomer shall succeed.
    pub(super) fn awaited_by(&self, own: u64) -> Option<u64> {
        let rows: Vec<Row> = self.table().rows().map(|(_, row)| row).collect();
        let newcomer =
            |row: &&Row| row.cookie == own && row.state == State::Newcomer && row.weight > 0;
        let newcomer = rows.iter().find(newcomer)?;
        let is_it = |row: &&Row| {
            let is_same = row.name == newcomer.name && row.class == newcomer.class;
            row.state == State::Awaited && is_same
        };
        rows.iter().find(is_it).map(|row| row.cookie)
    }

    pub(in super::super) fn awaited(&self) -> Vec<u64> {
        let rows = self.table().rows();
        let awaited = rows.filter(|(_, row)| row.state == State::Awaited);
        awaited.map(|(_, row)| row.cookie).collect()
    }

    /// The member that reads the ring of a member that is gone.
    pub(in super::super) fn taker_of(&self, cookie: u64) -> Option<u64> {
        let mut rows = self.table().rows();
        let row = rows.find_map(|(_, row)| (row.cookie == cookie).then_some(row))?;
        (row.state == State::TakenOver).then_some(row.taker)
    }

    /// This many nanoseconds pass without packets.
    pub(in super::super) fn idle(&mut self, ns: u64) {
        self.kernel.idle_ns += ns;
    }

    /// From now on this many nanoseconds pass between two readings of the clock.
    pub(in super::super) fn slow_down(&mut self, ns: u64) {
        self.kernel.between_looks_ns = ns;
    }

    /// The grace period of all awaited members ends.
    pub(in super::super) fn end_grace(&mut self) {
        self.idle(GRACE_NS);
        self.recover();
        assert!(self.members().is_empty() || self.awaited().is_empty());
    }

    /// Checks that the successor has exactly the buckets of `awaited`, and that no other buckets
    /// moved.
    pub(super) fn check_succession(&self, before: &[u64], awaited: u64, successor: u64) {
        for (&before, after) in before.iter().zip(self.owners_in(self.class(successor))) {
            let expected = if before == awaited { successor } else { before };
            assert_eq!(after, expected);
        }
    }
}
