//! A group without living members, whose founder holds the group's lock.

use super::AttendError;
use crate::guard::GroupGuard;
use crate::kernel::Kernel;
use crate::page::MemberId;
use crate::shared::Shared;
use crate::slots::Slots;
use crate::table::{FinalCounters, Row, State};
use crate::takeover;
use fanpcap_buckets::Slot;
use fanpcap_engine::fd_store::StoredFd;
use std::io;

/// A group without living members. No newcomer joins while this exists.
#[derive(Debug)]
pub struct Memberless<'a> {
    shared: &'a Shared,
    _guard: GroupGuard,
}

impl<'a> Memberless<'a> {
    pub(super) fn new(shared: &'a Shared, guard: GroupGuard) -> Self {
        Self {
            shared,
            _guard: guard,
        }
    }

    /// Stops the packets into the rings of all members that are gone, if an engine fills these
    /// rings: their last counts are then final.
    pub(super) fn stop(&self) -> io::Result<()> {
        let Some(on_device) = &self.shared.on_device else {
            return Ok(());
        };
        let is_gone = |row: &Row| matches!(row.state, State::Dead | State::TakenOver);
        let rows = self.shared.table().rows();
        let mut gone = rows.filter(|(_, row)| is_gone(row));
        gone.try_for_each(|(slot, _)| on_device.dismiss(slot.0))
    }

    /// Closes the group's duplicate of a dead member's socket. The caller may have the last
    /// descriptor then, and closes it before [`Memberless::vacate`].
    ///
    /// # Errors
    /// [`AttendError::Change`].
    pub fn let_go(&self, member: MemberId) -> Result<(), AttendError> {
        let Some((_, cookie)) = self.slot_of(member) else {
            return Ok(());
        };
        let store = &self.shared.fd_store;
        let cut = store.remove(StoredFd::Lifeline(cookie));
        let removed = cut.and_then(|()| store.remove(StoredFd::Member(cookie)));
        removed.map_err(AttendError::Change)
    }

    /// Vacates the slot of a dead member whose socket is closed. Adds its final counters to the
    /// sums of the group.
    ///
    /// # Errors
    /// [`AttendError::Change`].
    pub fn vacate(
        &self,
        member: MemberId,
        final_counters: &FinalCounters,
    ) -> Result<(), AttendError> {
        let Some((_, cookie)) = self.slot_of(member) else {
            return Ok(());
        };
        let mut kernel = Kernel::of(self.shared);
        let mut slots = Slots::new(self.shared.table(), &mut kernel);
        let vacated = slots.vacate(cookie, final_counters);
        vacated.map_err(AttendError::Change)
    }

    /// Settles all members that are gone: stops their packets, writes their final counters to
    /// their pages, and closes their sockets and rings. Packets in the rings count as unread.
    ///
    /// # Errors
    /// [`AttendError::Change`].
    pub fn settle(self) -> Result<(), AttendError> {
        self.settle_all().map_err(AttendError::Change)
    }

    fn settle_all(&self) -> io::Result<()> {
        let mut kernel = Kernel::of(self.shared);
        let mut slots = Slots::new(self.shared.table(), &mut kernel);
        for slot in slots.stop_gone()? {
            let final_counters = takeover::give_up(self.shared, slot);
            let cookie = self.shared.table().row(slot).cookie;
            slots.vacate(cookie, &final_counters)?;
        }
        Ok(())
    }

    fn slot_of(&self, member: MemberId) -> Option<(Slot, u64)> {
        let mut rows = self.shared.table().rows();
        let found = rows.find(|(_, row)| row.cookie != 0 && row.member == member.socket());
        found.map(|(slot, row)| (slot, row.cookie))
    }
}
