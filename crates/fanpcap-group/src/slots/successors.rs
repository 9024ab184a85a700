//! Successors, in a group that one process serves: members that have something to inherit. On other
//! engines a member inherits while its own reader runs the group's tasks, so the reader takes no
//! packets meanwhile. The serving process first asks the member to take none. Until the member has
//! answered, the member that is gone keeps its buckets, and packets still come into its ring.

use super::succession::{due_by, predecessor};
use super::{KernelOps, Slots, classes};
use crate::table::{Row, State, Table};
use fanpcap_buckets::Slot;
use std::io;

/// Like [`super::due_ns`]. If members of the group have been `asked` to take no packets, leaves out
/// what waits for their answers.
pub(crate) fn due_of_successor_ns(
    table: Table<'_>,
    own: u64,
    now_ns: u64,
    asked: bool,
) -> Option<u64> {
    let due_by = due_by(table, own, now_ns);
    let due = |(slot, row): (Slot, Row)| {
        let due = due_by((slot, row));
        match row.state {
            State::Newcomer => due.filter(|_| {
                let waits = asked && may_succeed(table, &row);
                !waits && !classes::leaves_to_others(table, own, now_ns)
            }),
            State::Dead => due.filter(|&due| due > 0 || !asked),
            State::Free | State::Live | State::TakenOver | State::Vacant | State::Awaited => due,
        }
    };
    table.rows().filter_map(due).min()
}

/// Whether a member is a newcomer that gets the share of its predecessor.
fn may_succeed(table: Table<'_>, row: &Row) -> bool {
    let has_no_share = row.state == State::Newcomer && row.weight > 0;
    has_no_share && predecessor(table, row).is_some()
}

impl<G: KernelOps> Slots<'_, G> {
    /// Whether the member `own` would inherit buckets or rings now: by [`Slots::begin_share`] from
    /// its predecessor, or by [`Slots::take_over`].
    pub(crate) fn inherits(&mut self, own: u64) -> io::Result<bool> {
        self.prepare()?;
        let living = self.mark_gone(own)?;
        self.look_after_awaited(&living)?;
        if self.is_successor(own) && self.may_begin(own)? {
            return Ok(true);
        }
        let now_ns = self.kernel.now_ns();
        let has_shares = !classes::to_share_out(self.table, own, now_ns).is_empty();
        Ok(has_shares || !self.orphans_for(own, now_ns).is_empty())
    }

    /// Whether the member `own` is to succeed a member of its name.
    pub(crate) fn is_successor(&self, own: u64) -> bool {
        let slot = self.table.slot_of(own);
        slot.is_some_and(|slot| may_succeed(self.table, &self.table.row(slot)))
    }
}
