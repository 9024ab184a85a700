//! What a member that is gone leaves to its class: the class's other members read its ring. Others
//! do not, since they would get packets that are not theirs. They give up the ring when the class
//! has no members any more.
//!
//! All members wait for the hang-up of the same lifelines. Those of other classes leave it to the
//! class for a while. Then they cut the lifeline, so that it wakes nobody any more.
//!
//! The dead one keeps its buckets until somebody takes the ring. Whoever does gives them away in
//! the same turn, and reads the ring before what comes to it by these. So it gets no packet of a
//! flow after a later one. A member that came lately may have taken buckets from the dead one, and
//! got later packets already: it leaves the dead one to others for a while too.

use crate::lead::Lead;
use crate::table::{Part, Row, State, Table};
use fanpcap_buckets::{self as buckets, Share, Slot};

/// The class whose members do not get what is broadcast.
const BEYOND_BROADCAST: u8 = 63;

/// How long members of other classes leave a lifeline uncut, nanoseconds: the class's own members
/// wake by it.
pub(super) const LEFT_NS: u64 = 100_000_000;

/// A member that hangs has lost its share by then (`silence`): what it has left is no older.
const LATE_NS: u64 = 14_000_000_000;

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

/// Whether the member `own` has taken the place of one that is gone, so that it had none of the
/// other's packets.
pub(crate) fn succeeds(table: Table<'_>, own: u64, gone: &Row) -> bool {
    let slot = table.slot_of(own).filter(|_| gone.name != 0);
    slot.is_some_and(|slot| table.row(slot).name == gone.name)
}

/// After how many nanoseconds the member `own` must look after one that is dead.
pub(super) fn until_due(table: Table<'_>, own: u64, dead: &Row, now_ns: u64) -> Option<u64> {
    let is_its = may_inherit(table, own, dead);
    if is_its && (succeeds(table, own, dead) || !has_elder(table, own, now_ns)) {
        return Some(0);
    }
    let left = LEFT_NS.saturating_sub(now_ns.wrapping_sub(dead.since_ns));
    (is_its || !is_cut(dead)).then_some(left)
}

/// Whether the member `own` came so lately that it may have had newer packets of flows than a dead
/// member has left, and another member of its class has been there for longer.
fn has_elder(table: Table<'_>, own: u64, now_ns: u64) -> bool {
    let Some(slot) = table.slot_of(own) else {
        return false;
    };
    let own = table.row(slot);
    let is_elder = |row: &Row| {
        let is_older = row.since_ns < own.since_ns;
        row.state == State::Live && row.class == own.class && is_older
    };
    now_ns.wrapping_sub(own.since_ns) < LATE_NS && table.rows().any(|(_, row)| is_elder(&row))
}

/// Those dead members that still have buckets, which are for the member `own` to give away.
pub(super) fn to_share_out(table: Table<'_>, own: u64, now_ns: u64) -> Vec<(Slot, Row)> {
    let is_one = |(_, row): &(Slot, Row)| {
        let is_due = || until_due(table, own, row, now_ns) == Some(0);
        row.keeps() && may_inherit(table, own, row) && is_due()
    };
    table.rows().filter(is_one).collect()
}

/// Whether the lifeline of one that is dead or awaited is cut.
fn is_cut(gone: &Row) -> bool {
    gone.taker == gone.cookie
}

/// Whether the member `own` leaves one that is gone to others, who may wake by its lifeline.
pub(crate) fn leaves_to_others(table: Table<'_>, own: u64, now_ns: u64) -> bool {
    let is_left = |row: &Row| {
        let due = until_due(table, own, row, now_ns);
        row.state == State::Dead && due.is_some_and(|due| due > 0)
    };
    table.rows().any(|(_, row)| is_left(&row))
}

pub(super) fn has_taker(table: Table<'_>, row: &Row) -> bool {
    let slot = table.slot_of(row.taker);
    // What one that is awaited had taken over, its successor reads on.
    slot.is_some_and(|slot| table.row(slot).is_occupied())
}

/// The shares of a class's members, of all that own one.
pub(super) fn shares(table: Table<'_>, class: u8) -> Vec<Share> {
    owners(table, &|row| row.class == class && row.owns())
}

/// What a class's dead keep.
pub(super) fn kept(table: Table<'_>, class: u8) -> Vec<Share> {
    owners(table, &|row| row.class == class && row.keeps())
}

/// What members of a class keep that are gone, or have lost their place in the lead by that. Some
/// of these close their other sockets now, or nobody has noticed their death here.
pub(super) fn gone(table: Table<'_>, class: u8, lead: Option<&Lead>) -> Vec<Share> {
    let is_lost = |row: &Row| lead.is_some_and(|lead| lead.has_lost(row));
    let is_gone = |row: &Row| row.keeps() || (row.owns() && is_lost(row));
    owners(table, &|row| row.class == class && is_gone(row))
}

/// The shares of both.
pub(super) fn holders(table: Table<'_>, class: u8) -> Vec<Share> {
    owners(table, &|row| {
        row.class == class && (row.owns() || row.keeps())
    })
}

/// The shares of all members that get what is broadcast, and of their dead.
pub(super) fn of_everybody(table: Table<'_>) -> Vec<Share> {
    let is_one = |row: &Row| row.class != BEYOND_BROADCAST && (row.owns() || row.keeps());
    owners(table, &is_one)
}

fn owners(table: Table<'_>, is_one: &dyn Fn(&Row) -> bool) -> Vec<Share> {
    let share = |(slot, row): (Slot, Row)| Share {
        slot,
        weight: row.weight,
    };
    let owners = table.rows().filter(|(_, row)| is_one(row));
    owners.map(share).collect()
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
