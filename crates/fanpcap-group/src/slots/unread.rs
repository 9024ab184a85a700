//! Members whose applications have never read them. A group's first member has a share before its
//! application reads the handle, because libpcap buffers packets from the activation on. When
//! another member is read, the share goes to the members that are read, and one of these members
//! reads the first member's ring. The first member's application may have opened the handle for
//! another purpose. When this application looks for packets, its member gets its share and its ring
//! back.
//!
//! The row of a member whose ring other members shall read has the reader as its taker. While the
//! ring has no reader, the taker is the member itself.

use super::{KernelOps, Slots, classes};
use crate::table::{Journal, Row, State, Table};
use fanpcap_buckets::Slot;
use std::io;

impl<G: KernelOps> Slots<'_, G> {
    /// Called when the member `own` is read for the first time, and has its share. Members of its
    /// class that were never read lose their share.
    pub(crate) fn replace_unread(&mut self, own: u64) -> io::Result<()> {
        let Some(slot) = self.table.slot_of(own) else {
            return Ok(());
        };
        let reader = self.table.row(slot);
        let is_other = |row: &Row| row.cookie != own && row.class == reader.class;
        let rows = self
            .table
            .rows()
            .filter(|(_, row)| row.owns() && is_other(row));
        let live = rows.filter(|(_, row)| row.state == State::Live);
        let mut unread = Vec::new();
        for (slot, row) in live.filter(|_| reader.owns()) {
            if self.kernel.borrow(row.cookie)? {
                unread.push((slot, row));
            }
        }
        if unread.is_empty() {
            return Ok(());
        }
        self.note(Journal::Balance);
        for (slot, row) in unread {
            let taker = match is_read(self.table, &row) {
                true => row.taker,
                false => row.cookie,
            };
            self.kernel.step();
            self.table.set_row(slot, &Row { taker, ..row });
            self.set_state(slot, State::Newcomer);
        }
        self.finish_balance();
        Ok(())
    }

    /// Called before the member in this slot takes its share. If the member's application has
    /// looked for packets, no other member reads the member's ring any more. An application that
    /// has only asked for its descriptor has not looked for packets. Returns the member's row.
    pub(super) fn take_back(&mut self, slot: Slot) -> io::Result<Row> {
        let row = self.table.row(slot);
        let is_member = matches!(row.state, State::Live | State::Newcomer);
        if !is_member || row.taker == 0 || self.kernel.borrow(row.cookie)? {
            return Ok(row);
        }
        let row = Row { taker: 0, ..row };
        self.kernel.step();
        self.table.set_row(slot, &row);
        Ok(row)
    }

    /// Makes the member `own` read the ring of a living member, unless that member's application
    /// has begun to read the ring. Returns whether `own` shall read the ring.
    pub(super) fn take_unread(&mut self, slot: Slot, own: u64) -> io::Result<bool> {
        let row = self.table.row(slot);
        let is_unread = self.kernel.borrow(row.cookie)?;
        let taker = if is_unread { own } else { 0 };
        self.kernel.step();
        self.table.set_row(slot, &Row { taker, ..row });
        Ok(is_unread)
    }

    /// Called when the member `own` has read to its end a ring that it borrowed from a living
    /// owner. If the owner has died since, another takeover of the ring must follow: the owner may
    /// have begun to read the ring itself.
    pub(crate) fn give_back(&mut self, cookie: u64, own: u64) -> io::Result<()> {
        self.repair()?;
        let Some(slot) = self.table.slot_of(cookie) else {
            return Ok(());
        };
        let row = self.table.row(slot);
        let state = match row.state {
            State::TakenOver => State::Dead,
            State::Free
            | State::Newcomer
            | State::Live
            | State::Dead
            | State::Vacant
            | State::Awaited => row.state,
        };
        if row.taker == own {
            self.kernel.step();
            self.table.set_row(
                slot,
                &Row {
                    state,
                    taker: 0,
                    ..row
                },
            );
        }
        Ok(())
    }
}

/// Whether another member reads this member's ring. If this member is dead: whether another member
/// began to read the ring before the death, and still reads it.
pub(super) fn is_read(table: Table<'_>, row: &Row) -> bool {
    row.taker != 0 && row.taker != row.cookie && classes::has_taker(table, row)
}

/// Whether the member `own` shall read the ring of this living member.
pub(super) fn is_for(table: Table<'_>, own: u64, row: &Row) -> bool {
    let is_left = row.taker != 0 && !is_read(table, row);
    is_left && row.cookie != own && classes::is_of_class(table, own, row)
}
