//! A group that follows another: its buckets and ranks are those that the members have there.

use super::{Ground, Slots, classes};
use crate::lead::Lead;
use crate::table::{State, Table};
use fanpcap_buckets::{Share, Slot};
use std::io;

impl<'a, G: Ground> Slots<'a, G> {
    /// The same of a group that follows another, if it does.
    pub(crate) fn behind(self, lead: Option<Table<'a>>) -> Self {
        Self { lead, ..self }
    }

    /// Follows the lead where that has changed since, and is not changing.
    pub(crate) fn follow(&mut self) -> io::Result<()> {
        self.repair()?;
        let lead = self.lead.and_then(Lead::of);
        if lead.is_some_and(|lead| !lead.is_followed_by(self.table)) {
            self.balance();
        }
        Ok(())
    }

    /// Newcomers whose members have a share of the lead become live, but for successors, which take
    /// it over.
    pub(super) fn enlist_as(&mut self, lead: &Lead) {
        for (slot, row) in self.table.rows() {
            let is_due = row.state == State::Newcomer && lead.has_share(&row);
            if is_due && self.predecessor(&row).is_none() {
                self.set_state(slot, State::Live);
            }
        }
    }

    /// Moves the buckets and ranks of a class as the lead has them. What belongs to a member
    /// without a share here stays where it is, or goes to some member that has one. So does all of
    /// the gone members' while the lead is changing. Returns how many buckets have moved.
    pub(super) fn move_as(&mut self, class: u8, lead: Option<&Lead>, shares: &[Share]) -> usize {
        let due = lead.map(|it| it.owners_in(self.table, class));
        let (due, ranks) = due.unwrap_or_default();
        let part = self.table.part(class);
        let owners = part.owners(&classes::holders(self.table, class));
        let mut moved = 0;
        for (bucket, owner) in owners.into_iter().enumerate() {
            let some = shares[bucket % shares.len()].slot;
            let due = due.get(bucket).copied().flatten().or(owner).unwrap_or(some);
            if owner != Some(due) {
                self.ground.step();
                part.set_owner(bucket, due);
                moved += 1;
            }
        }
        if ranks.is_empty() {
            self.set_ranks(class);
            return moved;
        }
        let ranks = ranks.into_iter();
        let ranks: Vec<Slot> = ranks.map(|it| it.unwrap_or(shares[0].slot)).collect();
        self.ground.step();
        part.set_ranks(&ranks);
        moved
    }
}
