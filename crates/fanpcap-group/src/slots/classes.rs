//! What a member that is gone leaves to its class: the class's other members read its ring. Others
//! do not, since they would get packets that are not theirs. They give up the ring when the class
//! has no members any more.
//!
//! All members wait for the hang-up of the same lifelines. Those of other classes leave it to the
//! class for a while. Then they cut the lifeline, so that it wakes nobody any more.

use super::unread;
use crate::table::{Part, Row, State, Table};
use fanpcap_buckets::{self as buckets, Share, Slot};

/// The class whose members do not get what is broadcast.
const BEYOND_BROADCAST: u8 = 63;

/// How long members of other classes leave a lifeline uncut, nanoseconds: the class's own members
/// wake by it.
pub(super) const LEFT_NS: u64 = 100_000_000;

/// Whether the member `own` may read or give up the ring of one that is gone.
pub(super) fn may_inherit(table: Table<'_>, own: u64, gone: &Row) -> bool {
    let is_manned =
        |row: &Row| matches!(row.state, State::Live | State::Newcomer) && row.class == gone.class;
    is_of_class(table, own, gone) || !table.rows().any(|(_, row)| is_manned(&row))
}

/// Whether the member `own` has the class of one that is gone.
pub(crate) fn is_of_class(table: Table<'_>, own: u64, gone: &Row) -> bool {
    let slot = table.slot_of(own);
    slot.is_some_and(|slot| table.row(slot).class == gone.class)
}

/// After how many nanoseconds the member `own` must look after one that is dead.
pub(super) fn until_due(table: Table<'_>, own: u64, dead: &Row, now_ns: u64) -> Option<u64> {
    if may_inherit(table, own, dead) {
        return Some(0);
    }
    let left = LEFT_NS.saturating_sub(now_ns.wrapping_sub(dead.since_ns));
    (!is_cut(dead)).then_some(left)
}

/// Whether the lifeline of one that is dead or awaited is cut.
fn is_cut(gone: &Row) -> bool {
    gone.heir == gone.cookie
}

/// Members that are gone or not read, and have no heir that lives, as far as they are for the
/// member `own` to look after.
pub(super) fn orphans_for(table: Table<'_>, own: u64, now_ns: u64) -> Vec<(Slot, Row)> {
    let is_for_it = |(_, row): &(Slot, Row)| match row.state {
        State::Dead => until_due(table, own, row, now_ns) == Some(0),
        State::Inherited => !has_heir(table, row) && may_inherit(table, own, row),
        State::Newcomer => unread::is_for(table, own, row),
        State::Free | State::Live | State::Vacant | State::Awaited => false,
    };
    table.rows().filter(is_for_it).collect()
}

/// Whether the member `own` leaves one that is gone to others, who may wake by its lifeline.
pub(crate) fn leaves_to_others(table: Table<'_>, own: u64) -> bool {
    let is_left =
        |row: &Row| row.state == State::Dead && !is_cut(row) && !may_inherit(table, own, row);
    table.rows().any(|(_, row)| is_left(&row))
}

pub(super) fn has_heir(table: Table<'_>, row: &Row) -> bool {
    let slot = table.slot_of(row.heir);
    // The heir of an heir that is awaited is its successor.
    slot.is_some_and(|slot| {
        let state = table.row(slot).state;
        matches!(state, State::Live | State::Newcomer | State::Awaited)
    })
}

/// The shares of a class's members, of all that own one.
pub(super) fn shares(table: Table<'_>, class: u8) -> Vec<Share> {
    owners(table, &|row| row.class == class)
}

/// The shares of all members that get what is broadcast.
pub(super) fn of_everybody(table: Table<'_>) -> Vec<Share> {
    owners(table, &|row| row.class != BEYOND_BROADCAST)
}

fn owners(table: Table<'_>, is_one: &dyn Fn(&Row) -> bool) -> Vec<Share> {
    let owns = table.rows().filter(|(_, row)| row.owns() && is_one(row));
    let share = |(slot, row): (Slot, Row)| Share {
        slot,
        weight: row.weight,
    };
    owns.map(share).collect()
}

/// The slots of a class.
pub(super) fn members(table: Table<'_>, class: u8) -> Vec<Slot> {
    let of_class = table.rows().filter(|(_, row)| row.class == class);
    of_class.map(|(slot, _)| slot).collect()
}

/// The ranks of all that have a share, and of nobody else.
pub(super) fn ranks(part: Part<'_>, shares: &[Share]) -> Vec<Slot> {
    let slots: Vec<Slot> = shares.iter().map(|share| share.slot).collect();
    buckets::ranks(&part.ranks(), &slots)
}

/// Of members that do not read, those in whose class another has a share.
pub(super) fn replaceable(table: Table<'_>, silent: &[Slot]) -> Vec<Slot> {
    let reads = |share: &Share| !silent.contains(&share.slot);
    let has_others = |slot: &Slot| shares(table, table.row(*slot).class).iter().any(reads);
    silent.iter().copied().filter(has_others).collect()
}
