//! The sticky ids by which the BPF program of a sticky group identifies the members.

use super::World;
use crate::table::{Row, State};
use fanpcap_buckets::Slot;
use std::sync::atomic::{AtomicU64, Ordering};

impl World {
    pub(in super::super) fn sticky_id(&self, cookie: u64) -> u64 {
        let mut rows = self.table().rows();
        let row = rows.find(|(_, row)| row.cookie == cookie);
        row.map_or(0, |(_, row)| row.sticky_id)
    }

    /// Checks that each member has its own number, by which the BPF program finds the member's
    /// slot. For members that are gone, the BPF program finds no slot.
    pub(super) fn check_sticky_ids(&self, rows: &[(Slot, Row)]) {
        let load = |words: &[AtomicU64]| -> Vec<u64> {
            words.iter().map(|it| it.load(Ordering::Relaxed)).collect()
        };
        let (mut sticky_ids, mut holders) =
            (load(&self.memory.sticky_ids), load(&self.memory.holders));
        for (slot, row) in rows {
            let sticky_id = std::mem::take(&mut sticky_ids[usize::from(slot.0)]);
            let keeps = matches!(row.state, State::Live | State::Awaited | State::Dead);
            if !keeps || row.weight == 0 {
                assert_eq!(sticky_id, 0, "{slot:?}: {row:?}");
                continue;
            }
            assert_eq!(sticky_id, row.sticky_id, "{slot:?}");
            let holder = std::mem::take(&mut holders[usize::from(sticky_id.to_le_bytes()[0])]);
            assert_eq!(holder, (sticky_id & !0xff) | u64::from(slot.0), "{slot:?}");
        }
        assert!(holders.iter().all(|&it| it == 0), "{holders:?}");
        assert!(sticky_ids.iter().all(|&it| it == 0), "{sticky_ids:?}");
    }
}
