//! A group beside another one: the groups of one poller that have the same user, number and
//! steering program, on several devices. The two directions of a flow may come by two devices, and
//! shall meet in one process.
//!
//! The oldest of these groups decides for itself. In each other group, a bucket belongs to the
//! member of the process that owns it in the oldest group, if that process has a member here. The
//! other buckets are shared out among the members here. Rows name the pair of members that belong
//! together (`Row::lead`): the upper bits are those of the process, the lowest byte numbers the
//! process's members in a group. If a process has fewer members here, several of its members there
//! have one in common here.
//!
//! This differs from `following`, where each member has a socket on each device.

use super::{KernelOps, Slots, classes};
use crate::lead::{Lead, is_behind};
use crate::table::{Journal, Row, State, Table, at};
use fanpcap_buckets::layout::BUCKETS;
use fanpcap_buckets::{Move, Owners, Share, Slot, plan_beside};
use std::io;

/// The cookie of no member.
const NO_MEMBER: u64 = 0;

/// The bits of a pair that number the members of a process.
const NUMBER: u64 = 0xff;

/// The oldest group's table, between two changes.
pub struct Beside {
    lead: Lead,
    rows: Vec<Row>,
}

impl Beside {
    /// Reads the table; `None` while it changes.
    pub(crate) fn of(table: Table<'_>) -> Option<Self> {
        let generation = table.get(at::GENERATION);
        let rows = table.rows().map(|(_, row)| row).collect();
        let lead = Lead::of(table)?;
        (lead.generation() == generation).then_some(Self { lead, rows })
    }

    /// Whether the member of this pair has a share.
    pub fn has_share(&self, pair: u64) -> bool {
        let has_it = |row: &Row| row.lead == pair && (row.owns() || row.keeps());
        pair != 0 && self.rows.iter().any(has_it)
    }

    /// Whether the member of this pair has died and keeps its share, until another member takes
    /// over its ring.
    pub fn keeps_share(&self, pair: u64) -> bool {
        let keeps = |row: &Row| row.lead == pair && row.keeps();
        pair != 0 && self.rows.iter().any(keeps)
    }

    /// Since when the member of this pair is gone, nanoseconds of `CLOCK_MONOTONIC`, if no member
    /// has the pair now.
    pub fn lost_since(&self, pair: u64) -> Option<u64> {
        let rows = self.rows.iter().filter(|row| pair != 0 && row.lead == pair);
        let is_gone =
            |row: &Row| matches!(row.state, State::Dead | State::TakenOver | State::Vacant);
        match rows.clone().all(is_gone) {
            true => rows.map(|row| row.since_ns).max(),
            false => None,
        }
    }

    /// The weight of this pair's member; `None` if it has none.
    pub(crate) fn weight(&self, pair: u64) -> Option<u16> {
        let lives = |row: &&Row| matches!(row.state, State::Live | State::Newcomer);
        let mut rows = self.rows.iter().filter(lives);
        let row = rows.find(|row| pair != 0 && row.lead == pair)?;
        Some(row.weight)
    }

    /// For each slot of the oldest group: the slot in `table` of the same process, for a class.
    fn slots_in(&self, table: Table<'_>, class: u8) -> Vec<Option<Slot>> {
        let here: Vec<(Slot, u64)> = table
            .rows()
            .filter(|(_, row)| row.class == class && row.owns() && row.lead != 0)
            .map(|(slot, row)| (slot, row.lead))
            .collect();
        let in_table = |row: &Row| {
            let has_share = row.class == class && (row.owns() || row.keeps());
            match has_share && row.lead != 0 {
                true => counterpart(&here, row.lead),
                false => None,
            }
        };
        self.rows.iter().map(in_table).collect()
    }

    fn note_followed_by(&self, table: Table<'_>) {
        self.lead.note_followed_by(table);
    }
}

/// The slot of this pair, or of another one of the same process.
fn counterpart(here: &[(Slot, u64)], pair: u64) -> Option<Slot> {
    if let Some((slot, _)) = here.iter().find(|(_, it)| *it == pair) {
        return Some(*slot);
    }
    let is_same = |it: &&(Slot, u64)| it.1 & !NUMBER == pair & !NUMBER;
    let same: Vec<Slot> = here.iter().filter(is_same).map(|(slot, _)| *slot).collect();
    let number = usize::try_from(pair & NUMBER).unwrap_or_default();
    same.get(number.checked_rem(same.len())?).copied()
}

/// The moves of a class's buckets. While the other group changes, each bucket stays with its owner.
pub(super) fn plan(
    table: Table<'_>,
    class: u8,
    shares: &[Share],
    beside: Option<&Beside>,
) -> Vec<Move> {
    let owners = table.part(class).owners(shares);
    let bound = match beside {
        None => owners,
        Some(beside) => beside.bound(table, class),
    };
    plan_beside(&owners, shares, &bound)
}

impl Beside {
    /// The buckets whose owners have members in `table`, and the slots of these.
    fn bound(&self, table: Table<'_>, class: u8) -> Owners {
        let mut bound = [None; BUCKETS];
        let here = self.slots_in(table, class);
        for (slot, owner) in bound.iter_mut().zip(self.lead.owners(class)) {
            *slot = here.get(usize::from(owner.0)).copied().flatten();
        }
        bound
    }

    /// The ranks of a class's members in `table`: those of their processes in the other group come
    /// first, in their order there. `own` has the members in their order without that group. Each
    /// member has one rank, because copies of a packet go to all ranks.
    fn ranks(&self, table: Table<'_>, class: u8, own: &[Slot]) -> Vec<Slot> {
        let here = self.slots_in(table, class);
        let bound = self.lead.ranks(class).iter();
        let bound = bound.filter_map(|it| here.get(usize::from(it.0)).copied().flatten());
        let mut ranks = Vec::new();
        for slot in bound.chain(own.iter().copied()) {
            if own.contains(&slot) && !ranks.contains(&slot) {
                ranks.push(slot);
            }
        }
        ranks
    }
}

impl<G: KernelOps> Slots<'_, G> {
    /// Follows the group beside, if it has changed since the last time and does not change now.
    /// Members get the weights that the members of their pairs have there. Members that are gone
    /// keep their buckets until other members read their pools.
    pub(crate) fn follow_beside(&mut self) -> io::Result<()> {
        self.repair()?;
        let changed = self.kernel.beside();
        let changed = changed.filter(|lead| is_behind(self.table, *lead));
        let Some(beside) = changed.and_then(Beside::of) else {
            return Ok(());
        };
        self.mark_gone(NO_MEMBER)?;
        self.note(Journal::Balance);
        for (slot, row) in self.table.rows() {
            let lives = matches!(row.state, State::Live | State::Newcomer);
            let weight = beside.weight(row.lead).filter(|_| lives);
            if let Some(weight) = weight.filter(|it| *it != row.weight) {
                self.kernel.step();
                self.table.set_row(slot, &Row { weight, ..row });
            }
        }
        self.finish_balance();
        Ok(())
    }

    /// Of these members that do not read, those about which the group beside does not decide.
    pub(super) fn undecided_beside(&self, mut silent: Vec<Slot>) -> Vec<Slot> {
        if let Some(table) = self.kernel.beside() {
            let beside = Beside::of(table);
            silent.retain(|slot| {
                let pair = self.table.row(*slot).lead;
                beside.as_ref().is_some_and(|it| !it.has_share(pair))
            });
        }
        silent
    }

    /// Gives ranks to the members of a class that have a share. A dead member that keeps its share
    /// has a rank until another member reads its pool.
    pub(super) fn set_ranks_beside(&mut self, class: u8, beside: Option<&Beside>) {
        let part = self.table.part(class);
        let own = classes::ranks(part, &classes::holders(self.table, class));
        let ranks = match beside {
            Some(beside) => beside.ranks(self.table, class, &own),
            None => own,
        };
        self.kernel.step();
        part.set_ranks(&ranks);
    }

    /// Notes that the buckets are those of the group beside.
    pub(super) fn note_beside(&mut self, beside: &Beside) {
        self.kernel.step();
        beside.note_followed_by(self.table);
    }
}
