//! A group that follows another: its members own the same buckets and ranks as in the lead.

use super::{KernelOps, Slots, classes};
use crate::lead::Lead;
use crate::table::{Row, State, Table};
use fanpcap_buckets::{Share, Slot};
use std::io;

impl<'a, G: KernelOps> Slots<'a, G> {
    /// Makes these the slots of a group that follows `lead`; `None`: the group follows no other
    /// group.
    pub(crate) fn behind(self, lead: Option<Table<'a>>) -> Self {
        Self { lead, ..self }
    }

    /// Follows the lead if the lead has changed since the last time, unless the lead is changing
    /// now.
    pub(crate) fn follow(&mut self) -> io::Result<()> {
        self.repair()?;
        let lead = self.lead.and_then(Lead::of);
        if lead.is_some_and(|lead| !lead.is_followed_by(self.table)) {
            self.balance();
        }
        Ok(())
    }

    /// Gives newcomers the state of live members if they have a share in the lead. Leaves out
    /// successors, because a successor gets its predecessor's share.
    pub(super) fn enlist_as(&mut self, lead: &Lead) {
        for (slot, row) in self.table.rows() {
            let is_due = row.state == State::Newcomer && lead.has_share(&row);
            if is_due && self.predecessor(&row).is_none() {
                self.set_state(slot, State::Live);
            }
        }
    }

    /// Ends the wait for each successor that the lead no longer awaits and that has not joined.
    pub(super) fn end_waits_as(&mut self, lead: &Lead) {
        for (slot, row) in self.table.rows() {
            let is_over = row.state == State::Awaited && lead.has_lost(&row);
            let succeeds = |(_, it): (Slot, Row)| {
                it.state == State::Newcomer && self.predecessor(&it) == Some(slot)
            };
            if is_over && !self.table.rows().any(succeeds) {
                self.set_state(slot, State::Dead);
            }
        }
    }

    /// Moves the buckets and ranks of a class to the members that have them in the lead. Returns
    /// how many buckets have moved.
    ///
    /// A bucket stays with its owner in this group if its owner in the lead has no share in this
    /// group, or if the lead is changing. If its owner in this group has no share either, the
    /// bucket goes to a member that has one.
    ///
    /// A member that is gone keeps its buckets and ranks in this group until another member takes
    /// its ring of this group, even if the lead has given these buckets away. Otherwise the new
    /// owners would read later packets of a flow before the packets in the ring.
    pub(super) fn move_as(&mut self, class: u8, lead: Option<&Lead>, shares: &[Share]) -> usize {
        let due = lead.map(|it| it.owners_in(self.table, class));
        let (due, ranks) = due.unwrap_or_default();
        let part = self.table.part(class);
        let owners = part.owners(&classes::holders(self.table, class));
        let gone = classes::gone(self.table, class, lead);
        let kept = part.owners(&gone);
        let mut moved = 0;
        for (bucket, owner) in owners.into_iter().enumerate() {
            let some = shares[bucket % shares.len()].slot;
            let due = due.get(bucket).copied().flatten().or(owner).unwrap_or(some);
            if owner != Some(due) && kept[bucket].is_none() {
                self.kernel.step();
                part.set_owner(bucket, due);
                moved += 1;
            }
        }
        let has_rank = |it: &Share| ranks.contains(&Some(it.slot));
        if ranks.is_empty() || !gone.iter().all(has_rank) {
            self.set_ranks(class);
            return moved;
        }
        let ranks = ranks.into_iter();
        let ranks: Vec<Slot> = ranks.map(|it| it.unwrap_or(shares[0].slot)).collect();
        self.kernel.step();
        part.set_ranks(&ranks);
        moved
    }
}
