//! A group that has lost its last living member and still has a founder.

use super::{KernelOps, Slots};
use crate::table::{Row, State};
use fanpcap_buckets::Slot;
use std::io;

/// The cookie of no socket: a founder has no slot.
const NO_MEMBER: u64 = 0;

impl<G: KernelOps> Slots<'_, G> {
    /// Whether the group has no living member. While the group `awaits` a successor, it counts as
    /// one that has a member. Otherwise the wait for successors ends.
    pub(crate) fn is_memberless(&mut self, awaits: bool) -> io::Result<bool> {
        self.prepare()?;
        let living = self.mark_gone(NO_MEMBER)?;
        self.look_after_awaited(&living)?;
        let is_used =
            |(_, row): (Slot, Row)| row.is_occupied() && (awaits || row.state != State::Awaited);
        if self.table.rows().any(is_used) {
            return Ok(false);
        }
        let mut rows = self.table.rows();
        while let Some((slot, _)) = rows.find(|(_, row)| row.state == State::Awaited) {
            self.set_state(slot, State::Dead);
        }
        Ok(true)
    }

    /// Stops the packets into the rings of all members that are gone, and returns their slots. The
    /// group has no living member.
    pub(crate) fn stop_gone(&mut self) -> io::Result<Vec<Slot>> {
        let is_gone = |(_, row): &(Slot, Row)| matches!(row.state, State::Dead | State::TakenOver);
        let gone: Vec<(Slot, Row)> = self.table.rows().filter(is_gone).collect();
        for (slot, row) in &gone {
            self.kernel.step();
            self.kernel.leave(*slot)?;
            self.kernel.step();
            self.kernel.refuse(row.cookie)?;
            self.kernel.step();
            self.kernel.cut(row.cookie)?;
        }
        if !gone.is_empty() {
            self.kernel.settle()?;
        }
        Ok(gone.into_iter().map(|(slot, _)| slot).collect())
    }
}
