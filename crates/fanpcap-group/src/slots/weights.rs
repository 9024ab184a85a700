//! Changes the weight of a member. A member with the weight 0 is drained: it stays in the group and
//! owns no bucket.

use super::{KernelOps, Slots, classes};
use crate::table::{Journal, Row, State};
use fanpcap_buckets::Slot;
use std::io;

/// The result of a change of weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weighed {
    /// The member has the new weight, and the number of buckets for it.
    Done,
    /// The member is not in the group, or not any more.
    Gone,
    /// Without this member, no member of its class would have a share.
    Last,
}

impl<G: KernelOps> Slots<'_, G> {
    /// Gives a member another weight, and the number of buckets for that weight; a weight of 0
    /// gives none. The member still gets the packets in flight to it, and the packets in its ring.
    pub(crate) fn weigh(&mut self, cookie: u64, weight: u16) -> io::Result<Weighed> {
        self.repair()?;
        self.mark_gone(0)?;
        let now_ns = self.kernel.now_ns();
        self.share_out(0, now_ns);
        let slot = self.table.slot_of(cookie);
        let member = slot.map(|slot| (slot, self.table.row(slot)));
        let member = member.filter(|(_, row)| matches!(row.state, State::Live | State::Newcomer));
        let Some((slot, row)) = member else {
            return Ok(Weighed::Gone);
        };
        let mut rows = self.table.rows();
        let class = row.class;
        let is_other = |(other, row): (Slot, Row)| {
            let has_share = row.state == State::Live && row.weight > 0;
            other != slot && has_share && row.class == class
        };
        if weight == 0 && !rows.any(is_other) {
            return Ok(Weighed::Last);
        }
        // A member that gets more weight gets buckets of other members, whose rings may have
        // earlier packets. So this member counts as one that joined lately (see `classes`).
        let since_ns = match weight > row.weight {
            true => now_ns,
            false => row.since_ns,
        };
        self.note(Journal::Balance);
        self.kernel.step();
        let weighed = Row {
            weight,
            since_ns,
            ..row
        };
        self.table.set_row(slot, &weighed);
        self.finish_balance();
        Ok(Weighed::Done)
    }

    /// Gives a share to members of a class in which no member has one: the packets of the class
    /// must be delivered. Newcomers become live. If there are no newcomers, live members without a
    /// weight get a weight.
    pub(super) fn enlist(&mut self, class: u8) {
        let members = classes::members(self.table, class);
        for &slot in &members {
            if self.table.row(slot).state == State::Newcomer {
                self.set_state(slot, State::Live);
            }
        }
        if self.has_owner(class) {
            return;
        }
        for &slot in &members {
            let row = self.table.row(slot);
            if row.state == State::Live {
                self.kernel.step();
                self.table.set_row(slot, &Row { weight: 1, ..row });
            }
        }
    }
}
