//! What a member that is gone leaves to its class: the class's other members read its ring. Others
//! do not, since they would get packets that are not theirs. They give up the ring when the class
//! has no members any more.
//!
//! All members wait for the hang-up of the same lifelines. Those of other classes leave it to the
//! class for a while. Then they cut the lifeline, so that it wakes nobody any more.

use super::{Ground, Slots};
use crate::table::{Row, State, Table};
use fanpcap_buckets::Slot;

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

impl<G: Ground> Slots<'_, G> {
    /// Members that are gone and have no heir that lives, as far as they are for the member `own`
    /// to look after.
    pub(super) fn orphans_for(&self, own: u64) -> Vec<(Slot, Row)> {
        let now_ns = self.ground.now_ns();
        let is_for_it = |(_, row): &(Slot, Row)| match row.state {
            State::Dead => until_due(self.table, own, row, now_ns) == Some(0),
            State::Inherited => !self.has_heir(row) && may_inherit(self.table, own, row),
            State::Free | State::Newcomer | State::Live | State::Vacant | State::Awaited => false,
        };
        self.table.rows().filter(is_for_it).collect()
    }

    /// Whether the member `own` leaves one that is gone to others, who may wake by its lifeline.
    pub(crate) fn leaves_to_others(&self, own: u64) -> bool {
        let is_left = |row: &Row| {
            row.state == State::Dead && !is_cut(row) && !may_inherit(self.table, own, row)
        };
        self.table.rows().any(|(_, row)| is_left(&row))
    }

    fn has_heir(&self, row: &Row) -> bool {
        let slot = self.table.slot_of(row.heir);
        // The heir of an heir that is awaited is its successor.
        slot.is_some_and(|slot| {
            let state = self.table.row(slot).state;
            matches!(state, State::Live | State::Newcomer | State::Awaited)
        })
    }
}
