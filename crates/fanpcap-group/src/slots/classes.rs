//! Classes of members. When a member is gone, the other members of its class read its ring. Members
//! of other classes do not read the ring, since its packets are for that class alone. They give up
//! the ring when that class has no members left.
//!
//! All members wait for the hang-up of the same lifelines. Members of other classes leave the dead
//! member to its class for a while. Then they cut the lifeline, so that it does not wake any member
//! again.
//!
//! The dead member keeps its buckets until another member takes its ring. That member gives the
//! buckets away under the same lock, and reads the ring before later packets of these buckets. So
//! it gets the packets of a flow in their order. This order would fail for a member that joined
//! lately and already had later packets of these flows. Such a member also leaves the dead member
//! to others for a while.

use crate::lead::Lead;
use crate::table::{Part, Row, State, Table};
use fanpcap_buckets::{self as buckets, Share, Slot};

/// The class whose members do not get broadcast packets.
const BEYOND_BROADCAST: u8 = 63;

/// How long members of other classes leave a lifeline uncut, nanoseconds. In this time the lifeline
/// wakes the members of the dead member's class.
pub(super) const LEFT_NS: u64 = 100_000_000;

/// How long after its join a member counts as one that joined lately, nanoseconds. Within this time
/// a member that hangs loses its share (`silence`). So a dead member's ring has no packets that are
/// older.
const LATE_NS: u64 = 14_000_000_000;

/// Whether the member `own` may read or give up the ring of a member that is gone.
pub(super) fn may_inherit(table: Table<'_>, own: u64, gone: &Row) -> bool {
    let is_manned =
        |row: &Row| matches!(row.state, State::Live | State::Newcomer) && row.class == gone.class;
    is_of_class(table, own, gone) || !table.rows().any(|(_, row)| is_manned(&row))
}

/// Whether the member `own` has the class of a member that is gone.
pub(crate) fn is_of_class(table: Table<'_>, own: u64, gone: &Row) -> bool {
    let slot = table.slot_of(own);
    slot.is_some_and(|slot| table.row(slot).class == gone.class)
}

/// Whether the member `own` has the name of a member that is gone. If it has, it has had no packets
/// of that member's flows.
pub(crate) fn succeeds(table: Table<'_>, own: u64, gone: &Row) -> bool {
    let slot = table.slot_of(own).filter(|_| gone.name != 0);
    slot.is_some_and(|slot| table.row(slot).name == gone.name)
}

/// Nanoseconds until the member `own` must look after a dead member; `None` if it need not.
pub(super) fn until_due(table: Table<'_>, own: u64, dead: &Row, now_ns: u64) -> Option<u64> {
    let is_its = may_inherit(table, own, dead);
    if is_its && (succeeds(table, own, dead) || !has_elder(table, own, now_ns)) {
        return Some(0);
    }
    let left = LEFT_NS.saturating_sub(now_ns.wrapping_sub(dead.since_ns));
    (is_its || !is_cut(dead)).then_some(left)
}

/// Whether the member `own` joined lately, while its class has an older member. Such a member may
/// already have had newer packets of a flow than those in a dead member's ring.
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

/// The dead members that still have buckets, which the member `own` shall give away.
pub(super) fn to_share_out(table: Table<'_>, own: u64, now_ns: u64) -> Vec<(Slot, Row)> {
    let is_one = |(_, row): &(Slot, Row)| {
        let is_due = || until_due(table, own, row, now_ns) == Some(0);
        row.keeps() && may_inherit(table, own, row) && is_due()
    };
    table.rows().filter(is_one).collect()
}

/// Whether the lifeline of a dead or awaited member is cut.
fn is_cut(gone: &Row) -> bool {
    gone.taker == gone.cookie
}

/// Whether the member `own` leaves a dead member to other members. The dead member's lifeline may
/// still have to wake them.
pub(crate) fn leaves_to_others(table: Table<'_>, own: u64, now_ns: u64) -> bool {
    let is_left = |row: &Row| {
        let due = until_due(table, own, row, now_ns);
        row.state == State::Dead && due.is_some_and(|due| due > 0)
    };
    table.rows().any(|(_, row)| is_left(&row))
}

pub(super) fn has_taker(table: Table<'_>, row: &Row) -> bool {
    let slot = table.slot_of(row.taker);
    // The successor of an awaited member continues with the rings that the awaited member had taken
    // over.
    slot.is_some_and(|slot| table.row(slot).is_occupied())
}

/// The shares of all members of a class that own one.
pub(super) fn shares(table: Table<'_>, class: u8) -> Vec<Share> {
    owners(table, &|row| row.class == class && row.owns())
}

/// The shares that a class's dead members keep.
pub(super) fn kept(table: Table<'_>, class: u8) -> Vec<Share> {
    owners(table, &|row| row.class == class && row.keeps())
}

/// The shares of members of a class that are gone, or have lost their place in the lead. Some of
/// these members are still closing their other sockets. The death of others has not been noticed in
/// this group yet.
pub(super) fn gone(table: Table<'_>, class: u8, lead: Option<&Lead>) -> Vec<Share> {
    let is_lost = |row: &Row| lead.is_some_and(|lead| lead.has_lost(row));
    let is_gone = |row: &Row| row.keeps() || (row.owns() && is_lost(row));
    owners(table, &|row| row.class == class && is_gone(row))
}

/// The shares of owners and of dead members.
pub(super) fn holders(table: Table<'_>, class: u8) -> Vec<Share> {
    owners(table, &|row| {
        row.class == class && (row.owns() || row.keeps())
    })
}

/// The shares of all members that get broadcast packets, dead ones included.
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

pub(super) fn members(table: Table<'_>, class: u8) -> Vec<Slot> {
    let of_class = table.rows().filter(|(_, row)| row.class == class);
    of_class.map(|(slot, _)| slot).collect()
}

/// The ranks of all members that have a share, and of no others.
pub(super) fn ranks(part: Part<'_>, shares: &[Share]) -> Vec<Slot> {
    let slots: Vec<Slot> = shares.iter().map(|share| share.slot).collect();
    buckets::ranks(&part.ranks(), &slots)
}

/// The silent members that can be replaced: in their class, a member that is not silent has a
/// share.
pub(super) fn replaceable(table: Table<'_>, silent: &[Slot]) -> Vec<Slot> {
    let reads = |share: &Share| !silent.contains(&share.slot);
    let has_others = |slot: &Slot| shares(table, table.row(*slot).class).iter().any(reads);
    silent.iter().copied().filter(has_others).collect()
}
