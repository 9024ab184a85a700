//! Classes of members. When a member is gone, another member of its class reads its ring. Members
//! of other classes do not read the ring, since the ring's packets are for that class alone. When
//! that class has no members left, a member of another class gives up the ring.
//!
//! All members wait for the hang-up of the same lifelines. Members of other classes leave the dead
//! member to its class for a while. Then they cut the dead member's lifeline, so that the lifeline
//! does not wake any member again.
//!
//! The dead member keeps its buckets until another member takes its ring. That member gives the
//! buckets away under the same lock, and reads the ring before later packets of these buckets. So
//! it reads the packets of a flow in their order. A member that joined lately may already have read
//! later packets of these flows. If it took the ring, it would read packets of a flow out of order.
//! So such a member, too, leaves the dead member for a while to the older members of its class, if
//! there are any.

use crate::lead::Lead;
use crate::table::{Part, Row, State, Table};
use fanpcap_buckets::{self as buckets, Share, Slot};

/// The class whose members do not get broadcast packets.
const BEYOND_BROADCAST: u8 = 63;

/// How long a dead member is left to the members that shall read its ring, nanoseconds. The dead
/// member's lifeline stays uncut in this time, so that the lifeline wakes these members.
pub(super) const LEFT_NS: u64 = 100_000_000;

/// How long after its join a member counts as one that joined lately, nanoseconds. A member that
/// hangs loses its share within a shorter time (`silence`). So no packet in a dead member's ring
/// is older than this time.
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

/// Whether the member `own` has the name of a member that is gone. Such a successor has not read
/// packets of that member's flows yet.
pub(crate) fn succeeds(table: Table<'_>, own: u64, gone: &Row) -> bool {
    let slot = table.slot_of(own).filter(|_| gone.name != 0);
    slot.is_some_and(|slot| table.row(slot).name == gone.name)
}

/// Nanoseconds until the member `own` must look after a dead member; `None` if `own` need not look
/// after it.
pub(super) fn until_due(table: Table<'_>, own: u64, dead: &Row, now_ns: u64) -> Option<u64> {
    let is_its = may_inherit(table, own, dead);
    if is_its && (succeeds(table, own, dead) || !has_elder(table, own, now_ns)) {
        return Some(0);
    }
    let left = LEFT_NS.saturating_sub(now_ns.wrapping_sub(dead.since_ns));
    (is_its || !is_cut(dead)).then_some(left)
}

/// Whether the member `own` joined lately, while its class has an older member. If so, `own` may
/// already have read newer packets of a flow than those in a dead member's ring.
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
/// still have to wake these other members.
pub(crate) fn leaves_to_others(table: Table<'_>, own: u64, now_ns: u64) -> bool {
    let is_left = |row: &Row| {
        let due = until_due(table, own, row, now_ns);
        row.state == State::Dead && due.is_some_and(|due| due > 0)
    };
    table.rows().any(|(_, row)| is_left(&row))
}

pub(super) fn has_taker(table: Table<'_>, row: &Row) -> bool {
    let slot = table.slot_of(row.taker);
    // An awaited member counts as a taker: its successor continues with the rings that the awaited
    // member had taken over.
    slot.is_some_and(|slot| table.row(slot).is_occupied())
}

/// The shares of all members of a class that have a share, except dead members.
pub(super) fn shares(table: Table<'_>, class: u8) -> Vec<Share> {
    owners(table, &|row| row.class == class && row.owns())
}

/// The shares that a class's dead members keep.
pub(super) fn kept(table: Table<'_>, class: u8) -> Vec<Share> {
    owners(table, &|row| row.class == class && row.keeps())
}

/// The shares that a class's members keep that are gone, in a group beside another one. A member
/// whose successor is awaited keeps its share here, even if the wait is over in the other group.
pub(super) fn kept_beside(table: Table<'_>, class: u8) -> Vec<Share> {
    let keeps = |row: &Row| row.keeps() || row.state == State::Awaited;
    owners(table, &|row| row.class == class && keeps(row))
}

/// The shares of members of a class that are dead in this group, or that the lead no longer has. A
/// member that only the lead has lost may still be closing its socket in this group, or this group
/// has not noticed its death yet.
pub(super) fn gone(table: Table<'_>, class: u8, lead: Option<&Lead>) -> Vec<Share> {
    let is_lost = |row: &Row| lead.is_some_and(|lead| lead.has_lost(row));
    let is_gone = |row: &Row| row.keeps() || (row.owns() && is_lost(row));
    owners(table, &|row| row.class == class && is_gone(row))
}

/// The shares of all members of a class that own a share, and of dead members that keep one.
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

/// Ranks for the members in `shares`, and for no other members.
pub(super) fn ranks(part: Part<'_>, shares: &[Share]) -> Vec<Slot> {
    let slots: Vec<Slot> = shares.iter().map(|share| share.slot).collect();
    buckets::ranks(&part.ranks(), &slots)
}

/// The silent members that can lose their share: in their class, a member that is not silent has a
/// share too.
pub(super) fn replaceable(table: Table<'_>, silent: &[Slot]) -> Vec<Slot> {
    let reads = |share: &Share| !silent.contains(&share.slot);
    let has_others = |slot: &Slot| shares(table, table.row(*slot).class).iter().any(reads);
    silent.iter().copied().filter(has_others).collect()
}
