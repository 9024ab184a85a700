//! What the members of a following group do.

use super::World;

impl World {
    /// Makes this group follow the group `lead` as that group is now.
    pub(in super::super) fn behind(&mut self, lead: &Self) {
        self.lead = Some(lead.memory.clone());
    }

    /// The member `own` makes this group follow the lead if the lead has changed.
    pub(in super::super) fn follow(&mut self, own: u64) {
        self.change(own, |slots| slots.follow()).unwrap();
    }

    /// The sockets by rank.
    pub(in super::super) fn ranks(&self) -> Vec<u64> {
        let ranks = self.table().part(0).ranks().into_iter();
        ranks.map(|slot| self.in_slot(slot.0)).collect()
    }

    pub(in super::super) fn random(&mut self, below: u64) -> u64 {
        self.kernel.random(below)
    }
}
