//! By what the BPF program of a sticky group knows the members.

use super::World;
use crate::table::{Row, State};
use fanpcap_buckets::Slot;
use std::sync::atomic::{AtomicU64, Ordering};

impl World {
    /// The seat of a member.
    pub(in super::super) fn seat(&self, cookie: u64) -> u64 {
        let mut rows = self.table().rows();
        let row = rows.find(|(_, row)| row.cookie == cookie);
        row.map_or(0, |(_, row)| row.seat)
    }

    /// Each member has a number of its own, by which the BPF program finds its slot. Of those that
    /// are gone it finds nothing.
    pub(super) fn check_seats(&self, rows: &[(Slot, Row)]) {
        let load = |words: &[AtomicU64]| -> Vec<u64> {
            words.iter().map(|it| it.load(Ordering::Relaxed)).collect()
        };
        let (mut seats, mut holders) = (load(&self.memory.seats), load(&self.memory.holders));
        for (slot, row) in rows {
            let seat = std::mem::take(&mut seats[usize::from(slot.0)]);
            let keeps = matches!(row.state, State::Live | State::Awaited | State::Dead);
            if !keeps || row.weight == 0 {
                assert_eq!(seat, 0, "{slot:?}: {row:?}");
                continue;
            }
            assert_eq!(seat, row.seat, "{slot:?}");
            let holder = std::mem::take(&mut holders[usize::from(seat.to_le_bytes()[0])]);
            assert_eq!(holder, (seat & !0xff) | u64::from(slot.0), "{slot:?}");
        }
        assert!(holders.iter().all(|&it| it == 0), "{holders:?}");
        assert!(seats.iter().all(|&it| it == 0), "{seats:?}");
    }
}
