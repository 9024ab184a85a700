//! A newcomer on XDP. The kernel waits for packets in flight when it directs a slot's packets into
//! the newcomer's rings. So that is done without the group's lock, with which a stopped process
//! would keep all others from the group: the newcomer claims the slot, and others take the next.

use super::Entry;
use crate::faults;
use crate::ground::Kernel;
use crate::join::engine::{self, Xdp, create_rings};
use crate::join::prepared::ensure_sees_sent;
use crate::join::{JoinError, XdpError, device};
use crate::member::Member;
use crate::shared::Shared;
use crate::slots::Slots;
use crate::stake::Stake;
use crate::turn::{Claim, GroupLock, Turn};
use fanpcap_buckets::Slot;
use fanpcap_linux::packet::Address;
use fanpcap_linux::wait::clock;
use fanpcap_xdp::{GroupProgram, MemberRings};
use std::io;
use std::sync::Arc;

/// A newcomer's rings in the slot that it is to have. No packet comes there before it has joined.
/// If it does not join, the slot is empty again; if it dies, the next that has the slot replaces
/// them.
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

/// A group on XDP that has no member yet.
pub(super) struct Begun {
    shared: Shared,
    placed: Placed,
    /// Whether the device's packets come to it. Nobody else has the dock then.
    is_moored: bool,
}

/// The slot of a group's first member.
const FIRST: Slot = Slot(0);

impl Entry<'_> {
    /// Begins a group before its lock is taken, if the newcomer is prepared for that: nobody else
    /// has any of it yet. What fails is done once more under the lock.
    pub(super) fn begin(&self, key: u64) -> Option<Begun> {
        let asked = self.newcomer.asks_xdp()?;
        let mut begun = self.begin_with(asked.prepared.begin(key)?).ok()?;
        let moor = || engine::moor(self.newcomer, &begun.shared, asked.prepared.dock());
        begun.is_moored = asked.prepared.is_private() && moor().is_ok();
        Some(begun)
    }

    // It has two callers, each of which would have the code of it: the library's size.
    #[inline(never)]
    fn begin_with(&self, shared: Shared) -> Result<Begun, JoinError> {
        let placed = self.place(&shared, FIRST, None)?;
        Ok(Begun {
            shared,
            placed,
            is_moored: false,
        })
    }

    /// Enters a group as its first member.
    pub(super) fn enter_first_on_xdp(
        &self,
        asked: &Xdp<'_>,
        key: u64,
        begun: Option<Begun>,
        (address, lock): (Address, GroupLock),
        turn: &Turn,
    ) -> Result<Stake, JoinError> {
        let begun = match begun {
            Some(begun) => begun,
            None => self.begin_with(asked.prepared.shared(key, self.steering)?)?,
        };
        let (shared, dock) = (begun.shared, asked.prepared.dock());
        self.newcomer.leg.begin(shared.table(), self.cookie()?);
        let at_dock = (!begun.is_moored).then(|| turn.at_dock()).transpose();
        let at_dock = at_dock.map_err(|error| self.steer(error))?;
        if !begun.is_moored {
            engine::moor(self.newcomer, &shared, dock)?;
        }
        engine::steal(asked, &shared, dock)?;
        drop(at_dock);
        let table = shared.table();
        table.show_program(self.steering, clock::monotonic_ns());
        let stake = self.take_slot(Arc::new(shared), Some(begun.placed), address, lock)?;
        self.open_door(&stake);
        Ok(stake)
    }

    /// Claims a slot of a group that has members, and places the newcomer's rings there. Gives the
    /// group's lock back meanwhile; the group lasts, as the newcomer has its locker.
    pub(super) fn place_beside(
        &self,
        shared: &Shared,
        lock: &GroupLock,
        turn: Turn,
    ) -> Result<(Turn, Option<Placed>), JoinError> {
        if shared.on_xdp.is_none() || self.newcomer.asks_xdp().is_none() {
            return Ok((turn, None));
        }
        let mut claim = None;
        let mut claims = |slot: Slot| {
            claim = lock.claim(slot.0);
            claim.is_some() || !lock.is_seen()
        };
        let mut kernel = Kernel::of(shared);
        let lead = self.newcomer.lead().map(|lead| lead.shared().table());
        let mut slots = Slots::new(shared.table(), &mut kernel).behind(lead);
        let slot = slots.choose(&mut claims);
        let slot = slot.map_err(|error| self.failed("the group's locker", error))?;
        let slot = slot.ok_or(JoinError::Full(self.newcomer.fanout.id))?;
        // Without pages there are no claims.
        let kept = (!lock.is_seen()).then_some(turn);
        let placed = self.place(shared, slot, claim)?;
        let turn = kept.map_or_else(|| lock.take(), Ok);
        Ok((turn.map_err(|error| self.steer(error))?, Some(placed)))
    }

    /// Directs the packets of a slot that nobody else has into the newcomer's rings.
    #[inline(never)]
    fn place(
        &self,
        shared: &Shared,
        slot: Slot,
        claim: Option<Claim>,
    ) -> Result<Placed, JoinError> {
        let engine = shared.on_xdp.as_ref().zip(self.newcomer.asks_xdp());
        let (on_xdp, asked) =
            engine.ok_or_else(|| XdpError::Rings(io::ErrorKind::NotFound.into()))?;
        ensure_sees_sent(on_xdp, asked.outgoing)?;
        let lanes = on_xdp.program().lanes();
        let rings = match self.ready.rings(lanes) {
            Some(rings) => rings,
            None => create_rings(asked, lanes)?,
        };
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

    /// Notes, once, what the device has counted before packets may come for the newcomer.
    fn note_before(&self) {
        let rejections = self.early.map(Member::rejections);
        let before = self.before.get();
        self.before
            .set(before.or_else(|| rejections.map(|it| it.before_joining())));
    }

    /// Checks that the device's packets still come to the group. The newcomer may ask for what no
    /// other member has.
    pub(super) fn visit_dock(&self, shared: &Shared, turn: &Turn) -> Result<(), JoinError> {
        let asked = self.newcomer.asks_xdp().zip(shared.on_xdp.as_ref());
        if let Some((asked, on_xdp)) = asked {
            let _at_dock = turn.at_dock().map_err(|error| self.steer(error))?;
            let (group, ifindex) = (self.newcomer.fanout.id, self.newcomer.bound.ifindex);
            let is_lost = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
            let dock = on_xdp.dock(ifindex).map_err(|error| match error {
                error if is_lost(&error) => XdpError::Lost {
                    group,
                    device: device(ifindex),
                },
                error => XdpError::Locker(error),
            })?;
            engine::steal(asked, shared, &dock)?;
        }
        Ok(())
    }
}
