//! The lead: the group that another group follows. A group over several devices consists of one
//! kernel group on each device. The table of the first kernel group says which member owns each
//! bucket. In each other kernel group, the bucket belongs to the slot of the same member.

use crate::table::{DEVICE_GROUPS_MAX, Journal, Row, Table, at};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::SLOTS;
use std::sync::atomic::{Ordering, fence};

/// A slot for each bucket, and a slot for each rank.
pub(crate) type Both = (Vec<Option<Slot>>, Vec<Option<Slot>>);

/// The content of the lead's table, between two changes.
#[derive(Debug)]
pub(crate) struct Lead {
    generation: u64,
    classes: Vec<OfClass>,
    /// For each slot whose member has a share, or is dead and keeps one: the cookie of the slot's
    /// socket.
    cookies: [Option<u64>; SLOTS],
    /// The sockets of members that are alive or awaited.
    members: Vec<u64>,
}

/// The owners of a class's buckets, and its ranks.
#[derive(Debug)]
struct OfClass {
    class: u8,
    owners: Vec<Slot>,
    ranks: Vec<Slot>,
}

impl Lead {
    /// Reads the lead; `None` while it changes. The caller does not hold the lead's lock.
    pub(crate) fn of(table: Table<'_>) -> Option<Self> {
        let generation = table.get(at::GENERATION);
        let is_idle = table.journal() == Journal::Nothing;
        let mut cookies = [None; SLOTS];
        for (slot, row) in holders(table) {
            cookies[usize::from(slot.0)] = Some(row.cookie);
        }
        let of_class = |class| {
            let part = table.part(class);
            let owners = part.buckets.iter().map(|it| it.load(Ordering::Relaxed));
            OfClass {
                class,
                owners: owners.map(Slot).collect(),
                ranks: part.ranks(),
            }
        };
        let members = table.rows().filter(|(_, row)| row.is_occupied());
        let lead = Self {
            generation,
            classes: table.used_classes().into_iter().map(of_class).collect(),
            cookies,
            members: members.map(|(_, row)| row.cookie).collect(),
        };
        // Compare the generation only after all other values have been read.
        fence(Ordering::Acquire);
        let is_same = table.get(at::GENERATION) == generation;
        (is_idle && is_same && table.journal() == Journal::Nothing).then_some(lead)
    }

    /// The lead's generation.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The owners of a class's buckets; none if the class has no members.
    pub(crate) fn owners(&self, class: u8) -> &[Slot] {
        let of_class = self.classes.iter().find(|it| it.class == class);
        of_class.map_or(&[], |it| &it.owners)
    }

    /// A class's ranks.
    pub(crate) fn ranks(&self, class: u8) -> &[Slot] {
        let of_class = self.classes.iter().find(|it| it.class == class);
        of_class.map_or(&[], |it| &it.ranks)
    }

    /// Whether the member of this row, in a following group's table, has a share in the lead.
    pub(crate) fn has_share(&self, row: &Row) -> bool {
        row.lead != 0 && self.cookies.contains(&Some(row.lead))
    }

    /// Whether the member of this row is gone from the lead.
    pub(crate) fn has_lost(&self, row: &Row) -> bool {
        row.lead != 0 && !self.members.contains(&row.lead)
    }

    /// For each bucket and each rank of a class: the slot in `table` of the member that has this
    /// bucket or rank in the lead. `None` if that member has no share in `table`.
    pub(crate) fn owners_in(&self, table: Table<'_>, class: u8) -> Both {
        let mut here = [None; SLOTS];
        for (slot, row) in holders(table) {
            let its = |cookie: &Option<u64>| row.lead != 0 && *cookie == Some(row.lead);
            if let Some(lead) = self.cookies.iter().position(its) {
                here[lead] = Some(slot);
            }
        }
        let in_table = |slots: &[Slot]| slots.iter().map(|it| here[usize::from(it.0)]).collect();
        let of_class = self.classes.iter().find(|it| it.class == class);
        let both = of_class.map(|it| (in_table(&it.owners), in_table(&it.ranks)));
        both.unwrap_or_default()
    }

    /// Whether a table already has the owners that the lead has.
    pub(crate) fn is_followed_by(&self, table: Table<'_>) -> bool {
        table.get(at::FOLLOWED) == self.generation
    }

    pub(crate) fn note_followed_by(&self, table: Table<'_>) {
        table.set(at::FOLLOWED, self.generation);
    }
}

fn holders(table: Table<'_>) -> impl Iterator<Item = (Slot, Row)> {
    let rows = table.rows();
    rows.filter(|(_, row)| row.owns() || row.keeps())
}

impl Table<'_> {
    /// The keys of the groups that follow this one.
    pub(crate) fn device_groups(&self) -> Vec<u64> {
        let count = self.get(at::DEVICE_GROUPS);
        let count =
            usize::try_from(count).map_or(DEVICE_GROUPS_MAX, |it| it.min(DEVICE_GROUPS_MAX));
        (at::DEVICE_GROUPS + 1..=at::DEVICE_GROUPS + count)
            .map(|at| self.get(at))
            .collect()
    }

    pub(crate) fn set_device_groups(&self, keys: &[u64]) {
        for (at, &key) in (at::DEVICE_GROUPS + 1..).zip(keys.iter().take(DEVICE_GROUPS_MAX)) {
            self.set(at, key);
        }
        self.set(at::DEVICE_GROUPS, keys.len().min(DEVICE_GROUPS_MAX) as u64);
    }
}

/// Whether the lead has changed since the table took over the lead's owners.
pub(crate) fn is_behind(table: Table<'_>, lead: Table<'_>) -> bool {
    table.get(at::FOLLOWED) != lead.get(at::GENERATION)
}
