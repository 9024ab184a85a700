//! A balanced group: the packets that its buckets count, and its rounds.

use super::{KernelOps, Memory, World};
use crate::slots::rounds::ROUND_NS;
use crate::table::at;
use fanpcap_buckets::layout::BUCKETS;
use fanpcap_config::steering::Balance;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

impl World {
    pub(in super::super) fn balanced(seed: u64, balance: Balance) -> Self {
        let world = Self::new(seed);
        world.set_balance(Some(balance));
        world
    }

    /// A table for the next group, which is balanced as the former group was.
    pub(super) fn next_memory(&self) -> Memory {
        let memory = Memory::new(self.kernel.rings.is_some());
        let now_ns = self.kernel.now_ns();
        memory.table().set_balance(self.table().balance(), now_ns);
        memory
    }

    /// Gives the group a steering program with this setting for `balance`, which says which buckets
    /// move.
    pub(in super::super) fn set_balance(&self, balance: Option<Balance>) {
        let table = self.table();
        table.set_balance(balance, self.kernel.now_ns());
        table.set(at::DIGEST, 1);
    }

    /// Packets come to a bucket.
    pub(in super::super) fn count(&self, bucket: usize, packets: u32) {
        self.memory.loads[2 * bucket].fetch_add(packets, Ordering::Relaxed);
    }

    /// Counts as many packets as a round needs in random buckets, most of them in a few buckets.
    pub(super) fn count_at_random(&mut self) {
        if self.table().balance().is_none() {
            return;
        }
        for _ in 0..100 {
            let high = self.kernel.random(BUCKETS as u64) + 1;
            let bucket = usize::try_from(self.kernel.random(high)).unwrap();
            self.count(bucket, 500);
        }
    }

    /// The member `own` does a round if a round is due.
    pub(in super::super) fn level(&mut self, own: u64) {
        self.change(own, |slots| {
            slots.repair().unwrap();
            slots.level(own);
        });
    }

    /// This many packets come to each of these buckets; then the first member does a round. Returns
    /// how far the busiest member was above the mean, in parts of 1000.
    pub(in super::super) fn round(&mut self, flows: &[(usize, u32)]) -> u64 {
        let mut loads = BTreeMap::new();
        for &(bucket, packets) in flows {
            self.count(bucket, packets);
            *loads.entry(self.owner(bucket)).or_insert(0) += u64::from(packets);
        }
        self.idle(ROUND_NS);
        let member = self.members()[0];
        self.level(member);
        let (sum, most) = (loads.values().sum::<u64>(), loads.values().max());
        let mean = sum / self.members().len() as u64;
        most.map_or(0, |most| most.saturating_sub(mean) * 1000 / mean)
    }
}
