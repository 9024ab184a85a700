//! Remembers which member the flows of a sticky group (`+sticky`) went to, so that they keep their
//! member when buckets move. A BPF program remembers the same in an LRU map. Here, a hash has eight
//! places, of which a new flow takes the one that was used least lately.

use crate::table::{Part, Table};

/// A table of flows.
#[derive(Debug)]
pub(crate) struct Flows {
    sets: Box<[Set]>,
}

/// The places of some hashes, the flow that was used last first.
type Set = [Entry; PLACES];

const PLACES: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The class and the hash; 0: the place is free.
    key: u64,
    /// The sticky id of the flow's member (`fanpcap_buckets::layout::STICKY_IDS`).
    sticky_id: u64,
}

/// Bytes of a table that remembers about `flows` flows.
pub(crate) fn len(flows: u32) -> u64 {
    (sets(flows) * size_of::<Set>()) as u64
}

fn sets(flows: u32) -> usize {
    (flows as usize).div_ceil(PLACES).next_power_of_two()
}

/// The bit that distinguishes a key from a free place.
const USED: u64 = 1 << 63;

impl Flows {
    /// A table that remembers about `flows` flows.
    pub(crate) fn new(flows: u32) -> Self {
        Self {
            sets: vec![[Entry::default(); PLACES]; sets(flows)].into_boxed_slice(),
        }
    }

    /// The slot that gets a packet with this hash in a class whose part of the table is `part`: the
    /// slot of the member that last got the flow, if that member still has a slot, or else the
    /// owner of the hash's bucket.
    pub(crate) fn slot(
        &mut self,
        table: &Table,
        (class, part): (u8, Part<'_>),
        hash: u32,
    ) -> Option<u8> {
        let key = USED | (u64::from(class) << 32) | u64::from(hash);
        let mask = self.sets.len() - 1;
        // The lowest bits of all hashes in a bucket are equal.
        let set = &mut self.sets[(hash >> BUCKET_BITS) as usize & mask];
        if let Some(place) = set.iter().position(|entry| entry.key == key) {
            set[..=place].rotate_right(1);
            let had = set[0].sticky_id;
            if let Some(slot) = table.holder(had) {
                return Some(slot);
            }
        }
        let slot = part.of_hash(hash)?;
        let sticky_id = table.sticky_id(slot);
        if sticky_id != 0 {
            let is_known = set[0].key == key;
            if !is_known {
                set.rotate_right(1);
            }
            set[0] = Entry { key, sticky_id };
        }
        Some(slot)
    }
}

/// Bits of a hash that are its bucket (`fanpcap_buckets::layout::bucket`).
const BUCKET_BITS: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_buckets::layout::{BUCKETS, HOLDERS, RANK_COUNT, RANKS, SIZE, SLOTS, STICKY_IDS};
    use fanpcap_linux::file::sealed;
    use fanpcap_linux::memory::Memory;
    use fanpcap_steer::native::{self, Decision};
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A table whose members, by slot, have these sticky ids. Bucket `b` is that of the slot
    /// `b + shift`, modulo the number of members.
    fn memory(members: &[u64], shift: usize) -> Arc<Memory> {
        let len = u32::try_from(SIZE).unwrap();
        let memory = sealed::create_memory(c"fanpcap_test", len).unwrap();
        for bucket in 0..BUCKETS {
            let owner = (bucket + shift) % members.len();
            memory.bytes()[bucket].store(owner.to_le_bytes()[0], Ordering::Relaxed);
        }
        let count = memory.view::<AtomicU32>(RANK_COUNT, 1).unwrap();
        count[0].store(u32::try_from(members.len()).unwrap(), Ordering::Relaxed);
        let ids = memory.words(STICKY_IDS, SLOTS).unwrap();
        let holders = memory.words(HOLDERS, SLOTS).unwrap();
        for (slot, &id) in members.iter().enumerate() {
            memory.bytes()[RANKS + slot].store(slot.to_le_bytes()[0], Ordering::Relaxed);
            ids[slot].store(id, Ordering::Relaxed);
            let number = usize::from(id.to_le_bytes()[0]);
            holders[number].store((id & !0xff) | slot as u64, Ordering::Relaxed);
        }
        Arc::new(memory)
    }

    /// What the reference finds in the same table.
    fn expected(flows: &mut native::Flows, memory: &Memory, hash: u32) -> u8 {
        let bytes = |from: usize, count: usize| -> Vec<u8> {
            let bytes = &memory.bytes()[from..from + count];
            bytes.iter().map(|it| it.load(Ordering::Relaxed)).collect()
        };
        let words = |at: usize| -> Vec<u64> {
            let words = memory.words(at, SLOTS).unwrap();
            words.iter().map(|it| it.load(Ordering::Relaxed)).collect()
        };
        let (buckets, ids, holders) = (bytes(0, BUCKETS), words(STICKY_IDS), words(HOLDERS));
        let table = native::Table {
            buckets: buckets[..].try_into().unwrap(),
            ranks: &bytes(RANKS, 1),
            sticky_ids: ids[..].try_into().unwrap(),
            holders: holders[..].try_into().unwrap(),
        };
        flows.slot(&table, Decision::Steer(hash))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// As long as all flows fit, the table finds the slots of the evaluator's table, which
        /// forgets nothing.
        #[test]
        fn flows_keep_their_member_as_in_the_evaluators_table(
            rounds in proptest::collection::vec(
                (1..6_usize, 0..5_usize, any::<bool>(),
                 proptest::collection::vec(0..200_u32, 1..60)), 1..8),
        ) {
            let mut flows = Flows::new(4096);
            let mut reference = native::Flows::default();
            for (members, shift, is_renewed, hashes) in rounds {
                // Another stamp: other members in the same slots.
                let stamp = if is_renewed { 7 << 8 } else { 9 << 8 };
                let ids: Vec<u64> = (0..members as u64).map(|slot| stamp | (5 - slot)).collect();
                let memory = memory(&ids, shift);
                let table = Table::new(Arc::clone(&memory)).unwrap();
                for hash in hashes {
                    // Spread over the sets and buckets.
                    let hash = hash.wrapping_mul(0x9e37_79b1) >> 1;
                    let part = table.class(0).unwrap();
                    let slot = flows.slot(&table, (0, part), hash);
                    prop_assert_eq!(slot, Some(expected(&mut reference, &memory, hash)));
                }
            }
        }
    }

    #[test]
    fn the_length_is_that_of_the_memory() {
        for (flows, expected) in [(0, 128), (8, 128), (9, 256), (1_000_000, 16 << 20)] {
            let made = Flows::new(flows);
            assert_eq!(size_of_val(&made.sets[..]) as u64, expected, "{flows}");
            assert_eq!(len(flows), expected, "{flows}");
        }
    }

    #[test]
    fn the_flow_that_was_used_least_lately_is_forgotten_and_classes_are_apart() {
        let mut flows = Flows::new(8);
        let [before, after] =
            [0, 1].map(|shift| Table::new(memory(&[1 << 8, (1 << 8) | 1], shift)).unwrap());
        let mut slot = |table: &Table, class: u8, hash: u32| {
            flows.slot(table, (class, table.class(0).unwrap()), hash << BUCKET_BITS)
        };
        for hash in 0..8 {
            assert_eq!(slot(&before, 0, hash), Some(0));
        }
        assert_eq!(slot(&after, 0, 0), Some(0), "it stays");
        assert_eq!(
            slot(&after, 3, 0),
            Some(1),
            "a flow of another class takes a place"
        );
        assert_eq!(slot(&after, 0, 1), Some(1), "that of this flow");
        assert_eq!(slot(&after, 0, 0), Some(0));
        assert_eq!(slot(&after, 0, 3), Some(0));
    }
}
