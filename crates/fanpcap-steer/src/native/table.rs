//! Finds the slot of a decision in a group's table.

use fanpcap_buckets::layout::{self, BUCKETS, SLOTS};
use std::collections::HashMap;

use super::Decision;

/// A group's table as its BPF program reads it.
#[derive(Clone, Copy, Debug)]
pub struct Table<'t> {
    /// The slot of each bucket.
    pub buckets: &'t [u8; BUCKETS],
    /// The slot of each rank. The list is empty until a member owns a bucket for the first time.
    pub ranks: &'t [u8],
    /// The sticky id of the member in each slot (`layout::STICKY_IDS`).
    pub sticky_ids: &'t [u64; SLOTS],
    /// For each number in a sticky id, the stamp and the slot of the member that has this number
    /// (`layout::HOLDERS`).
    pub holders: &'t [u64; SLOTS],
}

/// The sticky id of the member that last got packets with each hash. A sticky group's BPF program
/// remembers the same, but only for a limited number of hashes.
#[derive(Clone, Debug, Default)]
pub struct Flows(HashMap<u32, u64>);

impl Flows {
    /// The slot that a sticky group's BPF program returns for the decision.
    pub fn slot(&mut self, table: &Table<'_>, decision: Decision) -> u8 {
        let hash = match decision {
            Decision::Member(_) | Decision::Drop => return table.slot(decision),
            Decision::Steer(hash) => hash,
            Decision::Copy | Decision::Double(..) | Decision::Broadcast => 0,
        };
        let lowest = |word: u64| word.to_le_bytes()[0];
        if let Some(had) = self.0.get(&hash) {
            let holder = table.holders[usize::from(lowest(*had))];
            if holder >> 8 == had >> 8 {
                return lowest(holder);
            }
        }
        let slot = table.slot(decision);
        match table.sticky_ids[usize::from(slot)] {
            0 => {}
            sticky_id => _ = self.0.insert(hash, sticky_id),
        }
        slot
    }
}

impl Table<'_> {
    /// The slot that a group's BPF program returns for the decision. A packet that is dropped, or
    /// that goes to several members, gets the slot of hash 0.
    pub fn slot(&self, decision: Decision) -> u8 {
        let hash = match decision {
            Decision::Member(number) => return self.of_member(number),
            Decision::Steer(hash) => hash,
            Decision::Drop | Decision::Copy | Decision::Double(..) | Decision::Broadcast => 0,
        };
        self.buckets[layout::bucket(hash)]
    }

    fn of_member(&self, number: u32) -> u8 {
        let rank = (number as usize).checked_rem(self.ranks.len());
        rank.and_then(|rank| self.ranks.get(rank))
            .copied()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_goes_by_its_bucket_and_a_number_by_its_rank() {
        let mut buckets = [9; BUCKETS];
        (buckets[0], buckets[5]) = (1, 2);
        let ranks = [7, 3, 4];
        let table = Table {
            buckets: &buckets,
            ranks: &ranks,
            sticky_ids: &[0; SLOTS],
            holders: &[0; SLOTS],
        };
        assert_eq!(table.slot(Decision::Steer(4096 + 5)), 2);
        assert_eq!(
            [0, 1, 5].map(|number| table.slot(Decision::Member(number))),
            [7, 3, 4]
        );
        assert_eq!(table.slot(Decision::Drop), 1);
        let nobody = Table {
            ranks: &[],
            ..table
        };
        assert_eq!(nobody.slot(Decision::Member(8)), 0);
    }
}
