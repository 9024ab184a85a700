//! Renumbers the slots after the device was down. The kernel then links a group's sockets again, in
//! the order of their creation (net/packet/af_packet.c, `packet_notifier()`).
//!
//! Each member's socket reports once that the device was down, by an error that the member's reader
//! takes. The members' rows count these errors. The table says after how many errors the slots were
//! last renumbered, so that they are not renumbered twice. When the two numbers are compared, an
//! error that is still pending on the member's socket is added to the row's count, so that a
//! newcomer can renumber the slots while all members are in callbacks.

use super::{KernelOps, Slots};
use crate::table::{Journal, Row, State, at};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::SLOTS;
use std::io;

impl<G: KernelOps> Slots<'_, G> {
    /// Call before a change of the kernel's array. Completes a change that another process left
    /// unfinished, and renumbers the slots if the device was down.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        self.repair()?;
        let told = self.kernel.told()?;
        let known = self.table.get(at::DOWNS);
        let ahead = |(_, row): (Slot, Row)| {
            // No reader takes the error from the socket of a member that is gone.
            let is_member = matches!(row.state, State::Live | State::Newcomer);
            let is_told = is_member && told.contains(&row.cookie);
            ahead(row.downs.wrapping_add(is_told.into()), low(known))
        };
        let latest = self.table.rows().map(ahead).max().unwrap_or(0);
        if latest > 0 {
            let order = self.kernel.order()?;
            if order.is_none_or(|order| self.renumber(&order)) {
                self.table.set(at::DOWNS, known.wrapping_add(latest.into()));
            }
        }
        Ok(())
    }

    /// Notes that a member has taken this many errors from its socket. The device may have been
    /// down more often: while an error is pending, the socket reports no further error.
    pub(crate) fn note_downs(&mut self, own: u64, count: u8) -> io::Result<()> {
        self.repair()?;
        if let Some(slot) = self.table.slot_of(own) {
            let row = self.table.row(slot);
            let (told, known) = (row.downs.wrapping_add(count), self.downs(own)?);
            let downs = known.wrapping_add(ahead(told, known));
            self.table.set_row(slot, &Row { downs, ..row });
        }
        self.prepare()
    }

    /// The count for a member's row now: [`at::DOWNS`], minus 1 if an error is pending on the
    /// member's socket.
    pub(super) fn downs(&mut self, own: u64) -> io::Result<u8> {
        let is_told = self.kernel.told()?.contains(&own);
        Ok(low(self.table.get(at::DOWNS)).wrapping_sub(is_told.into()))
    }

    /// Renumbers the slots by their sockets' positions in `order`, in one change. Returns false if
    /// `order` does not have all sockets of the table. In this case a member that can list these
    /// sockets renumbers the slots later.
    fn renumber(&mut self, order: &[u64]) -> bool {
        let position = |cookie| order.iter().position(|&it| it == cookie);
        let mut new: [u8; SLOTS] = std::array::from_fn(|slot| u8::try_from(slot).unwrap_or(0));
        for (slot, row) in self.table.rows() {
            let Some(Ok(position)) = position(row.cookie).map(u8::try_from) else {
                return false;
            };
            new[usize::from(slot.0)] = position;
        }
        if order.len() != self.table.positions() {
            return false;
        }
        let mut all = new.iter().enumerate();
        let is_same = all.all(|(slot, &new)| slot == usize::from(new));
        if !is_same {
            self.table.prepare_renumbering(&new);
            self.note(Journal::Renumber);
            self.finish_renumbering();
        }
        true
    }

    pub(super) fn finish_renumbering(&mut self) {
        self.kernel.step();
        self.table.renumber_rows();
        self.kernel.step();
        self.table.close_seats();
        self.kernel.step();
        self.table.renumber_buckets();
        self.finish();
    }
}

/// How far `count` is ahead of `known`, modulo 256; 0 if it is not ahead.
fn ahead(count: u8, known: u8) -> u8 {
    match count.wrapping_sub(known) {
        ahead @ 0..=127 => ahead,
        128..=255 => 0,
    }
}

fn low(count: u64) -> u8 {
    count.to_le_bytes()[0]
}
