//! Members with names, and those that succeed them.

use super::World;
use crate::slots::succession::GRACE_NS;
use crate::table::{Row, State};

impl World {
    /// A new socket of a member that has a name.
    pub(in super::super) fn open_named(&mut self, name: u64) -> u64 {
        let cookie = self.open();
        self.names.insert(cookie, name);
        cookie
    }

    /// Whom a newcomer is to succeed.
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

    /// The members that are awaited.
    pub(in super::super) fn awaited(&self) -> Vec<u64> {
        let rows = self.table().rows();
        let awaited = rows.filter(|(_, row)| row.state == State::Awaited);
        awaited.map(|(_, row)| row.cookie).collect()
    }

    /// Who reads the ring of a member that is gone.
    pub(in super::super) fn taker_of(&self, cookie: u64) -> Option<u64> {
        let mut rows = self.table().rows();
        let row = rows.find_map(|(_, row)| (row.cookie == cookie).then_some(row))?;
        (row.state == State::TakenOver).then_some(row.taker)
    }

    /// So many nanoseconds pass without packets.
    pub(in super::super) fn idle(&mut self, ns: u64) {
        self.kernel.idle_ns += ns;
    }

    /// From now on so many nanoseconds pass from one look at the clock to the next.
    pub(in super::super) fn slow_down(&mut self, ns: u64) {
        self.kernel.between_looks_ns = ns;
    }

    /// The grace period of all that are awaited ends.
    pub(in super::super) fn end_grace(&mut self) {
        self.idle(GRACE_NS);
        self.recover();
        assert!(self.members().is_empty() || self.awaited().is_empty());
    }

    /// The successor has exactly the buckets of `awaited`, and nobody else's have moved.
    pub(super) fn check_succession(&self, before: &[u64], awaited: u64, successor: u64) {
        for (&before, after) in before.iter().zip(self.owners_in(self.class(successor))) {
            let expected = if before == awaited { successor } else { before };
            assert_eq!(after, expected);
        }
    }
}
