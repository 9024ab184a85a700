//! Sticky ids, by which the BPF program of a sticky group remembers members. A sticky id is a stamp
//! and a number. A slot's number would not suffice: another member may get the slot later.

use super::{Row, Table};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::SLOTS;
use std::sync::atomic::Ordering;

/// The part of a sticky id that is its number.
const NUMBER: u64 = 0xff;

fn number(sticky_id: u64) -> usize {
    usize::from(sticky_id.to_le_bytes()[0])
}

impl Row {
    /// Whether the flows that the BPF program remembers stay with this slot. They do not stay with
    /// a drained member, nor with a member that lost its share because it was silent.
    fn keeps_flows(&self) -> bool {
        self.owns() || self.keeps()
    }
}

impl Table<'_> {
    /// A sticky id for the newcomer with this socket. Its number is the lowest that no slot other
    /// than `slot` uses.
    pub(crate) fn free_sticky_id(&self, cookie: u64, slot: Slot) -> u64 {
        let mut is_taken = [false; SLOTS];
        for (_, row) in self.rows().filter(|(it, _)| *it != slot) {
            is_taken[number(row.sticky_id)] |= row.sticky_id != 0;
        }
        let number = is_taken.iter().position(|taken| !taken).unwrap_or(0);
        // No other socket has this cookie until the machine restarts.
        ((cookie << 8) | number as u64).max(1 << 8)
    }

    /// Makes the BPF program remember no new flows while slots change their numbers.
    pub(crate) fn close_seats(&self) {
        for sticky_id in self.sticky_ids {
            sticky_id.store(0, Ordering::Release);
        }
    }

    /// Shows the BPF program which member is in which slot, from the rows.
    pub(crate) fn open_seats(&self) {
        let mut sticky_ids = [0; SLOTS];
        let mut holders = [0; SLOTS];
        for (slot, row) in self.rows().filter(|(_, row)| row.keeps_flows()) {
            sticky_ids[usize::from(slot.0)] = row.sticky_id;
            holders[number(row.sticky_id)] = (row.sticky_id & !NUMBER) | u64::from(slot.0);
        }
        for (words, values) in [(self.holders, holders), (self.sticky_ids, sticky_ids)] {
            for (word, value) in words.iter().zip(values) {
                word.store(value, Ordering::Release);
            }
        }
    }
}
