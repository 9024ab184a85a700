//! A newcomer's rings on XDP, in the slot that it is to have. The kernel waits for packets in
//! flight when it puts them there. So this is done without the group's lock: the slot is claimed
//! instead, and others take the next.

use super::entry::Entry;
use super::{JoinError, XdpError};
use crate::faults;
use crate::ground::Kernel;
use crate::shared::Shared;
use crate::slots::Slots;
use crate::turn::{Claim, GroupLock, Turn};
use fanpcap_buckets::Slot;
use fanpcap_xdp::{GroupProgram, MemberRings};
use std::sync::Arc;

/// The rings in their slot, to which no packet comes yet. If the newcomer does not join, the slot
/// is empty again. Who dies leaves the rings to the next that has the slot.
pub(super) struct Placed {
    program: Arc<GroupProgram>,
    pub(super) slot: Slot,
    /// Until the newcomer has joined.
    pub(super) rings: Option<MemberRings>,
    _claim: Option<Claim>,
}

impl Drop for Placed {
    fn drop(&mut self) {
        if self.rings.is_some() {
            let _ = self.program.take_away(self.slot.0);
        }
    }
}

impl Entry<'_> {
    /// Places the newcomer's rings in a group that has members. Gives the group's lock back
    /// meanwhile; the group lasts, as the newcomer has its locker.
    pub(super) fn place_beside(
        &self,
        shared: &Shared,
        lock: &GroupLock,
        turn: Turn,
    ) -> Result<(Turn, Placed), JoinError> {
        let mut claim = None;
        let mut claims = |slot: Slot| {
            claim = lock.claim(slot.0);
            claim.is_some() || !lock.is_seen()
        };
        let slot = Slots::new(shared.table(), &mut Kernel::of(shared)).choose(&mut claims);
        let slot = slot.map_err(|error| self.failed("the group's locker", error))?;
        let slot = slot.ok_or(JoinError::Full(self.newcomer.fanout.id))?;
        // Without pages there are no claims.
        let kept = (!lock.is_seen()).then_some(turn);
        let placed = self.place(shared, slot, claim)?;
        let turn = kept.map_or_else(|| lock.take(), Ok);
        Ok((turn.map_err(|error| self.steer(error))?, placed))
    }

    /// Directs the packets of a slot that nobody else has into the newcomer's rings.
    pub(super) fn place(
        &self,
        shared: &Shared,
        slot: Slot,
        claim: Option<Claim>,
    ) -> Result<Placed, JoinError> {
        let (on_xdp, asked, rings) = self.rings(shared)?;
        self.note_before();
        let (table, cookie) = (shared.table(), self.cookie()?);
        let put = on_xdp.put(table, slot, &rings, asked.snaplen, cookie);
        put.map_err(XdpError::Rings)?;
        faults::step();
        Ok(Placed {
            program: Arc::clone(on_xdp.program()),
            slot,
            rings: Some(rings),
            _claim: claim,
        })
    }
}
