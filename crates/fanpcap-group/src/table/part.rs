//! The parts of the table that the group's BPF program looks up: one for each class of members.

use super::{Row, State, Table};
use fanpcap_buckets::layout::{self, BUCKETS, CLASSES, EVERYBODY, SLOTS};
use fanpcap_buckets::{Owners, Share, Slot};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// The part of a class. The part of a class other than the default class is empty if the group's
/// members have no classes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part<'a> {
    /// The owner of each bucket.
    pub(crate) buckets: &'a [AtomicU8],
    /// The slot of each rank.
    pub(crate) ranks: &'a [AtomicU8],
    /// The number of ranks, as a slice with one entry.
    pub(crate) rank_count: &'a [AtomicU32],
}

/// The parts of all classes except the default class, and the part of everybody. Empty in groups on
/// packet sockets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Classes<'a> {
    /// The table from [`layout::SIZE`] on.
    pub(crate) bytes: &'a [AtomicU8],
    /// The same memory, for the numbers of ranks.
    pub(crate) numbers: &'a [AtomicU32],
}

impl<'a> Classes<'a> {
    /// The part of a class other than the default class.
    fn part(self, class: usize) -> Part<'a> {
        let at = layout::part(class).saturating_sub(layout::SIZE);
        let count = (at + layout::RANK_COUNT) / size_of::<u32>();
        let bytes = self.bytes.get(at..at + layout::RANK_COUNT);
        let (buckets, ranks) = bytes
            .unwrap_or_default()
            .split_at_checked(BUCKETS)
            .unwrap_or_default();
        Part {
            buckets,
            ranks,
            rank_count: self.numbers.get(count..=count).unwrap_or_default(),
        }
    }
}

impl<'a> Table<'a> {
    pub(crate) fn part(self, class: u8) -> Part<'a> {
        match class {
            0 => self.default,
            class => self.classes.part(class.into()),
        }
    }

    /// The part of everybody: of all members except those of class 63. Only its ranks are used.
    pub(crate) fn everybody(self) -> Part<'a> {
        self.classes.part(EVERYBODY)
    }

    /// The default class, and the classes that have members or had some when buckets last moved.
    pub(crate) fn used_classes(self) -> Vec<u8> {
        let mut used = 1_u64;
        for (_, row) in self.rows() {
            used |= 1 << (usize::from(row.class) % CLASSES);
        }
        let is_used = |class: &u8| (used >> class) & 1 == 1 || self.part(*class).has_ranks();
        (0..=LAST).filter(is_used).collect()
    }

    /// The class of a member outside the default class, if the group has such a member.
    pub(crate) fn class_of_members(self) -> Option<u8> {
        let is_it = |(_, row): &(Slot, Row)| {
            row.class != 0 && matches!(row.state, State::Live | State::Newcomer)
        };
        self.rows().find(is_it).map(|(_, row)| row.class)
    }
}

const LAST: u8 = 63;
const _: () = assert!(LAST as usize + 1 == CLASSES);

impl Part<'_> {
    /// The owners of all buckets; `None` for a bucket whose owner is not in `shares`.
    pub(crate) fn owners(&self, shares: &[Share]) -> Owners {
        let mut has_share = [false; SLOTS];
        for share in shares {
            has_share[usize::from(share.slot.0)] = true;
        }
        let mut owners = [None; BUCKETS];
        for (owner, bucket) in owners.iter_mut().zip(self.buckets) {
            let slot = bucket.load(Ordering::Relaxed);
            *owner = has_share[usize::from(slot)].then_some(Slot(slot));
        }
        owners
    }

    pub(crate) fn set_owner(&self, bucket: usize, slot: Slot) {
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.store(slot.0, Ordering::Release);
        }
    }

    fn count(&self) -> u32 {
        let count = self.rank_count.iter().map(|it| it.load(Ordering::Acquire));
        count.sum()
    }

    /// Whether the class has ranks. A class without members loses its ranks at the next change of
    /// buckets.
    pub(crate) fn has_ranks(&self) -> bool {
        self.count() > 0
    }

    pub(crate) fn ranks(&self) -> Vec<Slot> {
        let count = usize::try_from(self.count()).unwrap_or(0);
        let ranks = self.ranks.iter().take(count);
        ranks
            .map(|slot| Slot(slot.load(Ordering::Relaxed)))
            .collect()
    }

    /// Sets the slots by rank. A BPF program that reads at the same time finds old or new slots.
    pub(crate) fn set_ranks(&self, ranks: &[Slot]) {
        for (entry, &slot) in self.ranks.iter().zip(ranks) {
            entry.store(slot.0, Ordering::Release);
        }
        let count = u32::try_from(ranks.len().min(SLOTS)).unwrap_or(0);
        for it in self.rank_count {
            it.store(count, Ordering::Release);
        }
    }
}
