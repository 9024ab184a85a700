//! Enters a newcomer whose rings an engine fills. To direct a slot's packets into the newcomer's
//! rings takes a while, because the kernel waits for packets in flight. The newcomer does not hold
//! the group's lock during this wait: if its process were stopped, no other newcomer could join.
//! Instead the newcomer claims the slot, and other newcomers take the slots after it.

use super::Entry;
use crate::guard::{Claim, GroupGuard, GroupLock};
use crate::join::engine;
use crate::join::{EngineError, JoinError};
use crate::kernel::Kernel;
use crate::member::Member;
use crate::membership::Membership;
use crate::roster;
use crate::shared::Shared;
use crate::slots::Slots;
use crate::spares;
use fanpcap_buckets::Slot;
use fanpcap_engine::{MemberIo, Refusal, faults};
use fanpcap_linux::packet::Address;
use fanpcap_linux::wait::clock;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A newcomer's rings in its future slot. The rings get no packets before the newcomer has joined.
/// If the join fails, the rings are removed from the slot. If the newcomer's process dies first,
/// the next newcomer in this slot replaces the rings.
pub(super) struct Placed {
    shared: Arc<Shared>,
    pub(super) slot: Slot,
    /// The rings; `None` once the newcomer has joined.
    pub(super) io: Option<Box<dyn MemberIo>>,
    _claim: Option<Claim>,
}

impl Drop for Placed {
    fn drop(&mut self) {
        if let Some(on_device) = self.shared.on_device.as_ref().filter(|_| self.io.is_some()) {
            let _ = on_device.dismiss(self.slot.0);
        }
    }
}

/// A group on an engine, before the group has a member. The group is made without its lock, because
/// making rings takes a while.
pub(super) struct Begun {
    placed: Placed,
    /// Whether the group is attached to the device already, so that the device's packets come to
    /// it. It is attached before its lock is taken only if this process took the device itself, so
    /// that no other process has the device's descriptors yet.
    is_attached: bool,
}

const FIRST: Slot = Slot(0);

impl Entry<'_> {
    /// Begins a group before its lock is taken, if the newcomer has prepared a new group. No other
    /// process has any part of that group yet. If this fails, the caller begins the group again
    /// under the lock.
    pub(super) fn begin(&self, key: u64) -> Option<Begun> {
        let asked = self.newcomer.engine.as_ref()?;
        let mut begun = self
            .begin_with(asked.prepared.begin(key, self.steering)?)
            .ok()?;
        let attach_group = || engine::attach_group(&begun.placed.shared, false);
        begun.is_attached = asked.prepared.is_private() && attach_group().is_ok();
        Some(begun)
    }

    // Not inlined: the function has two callers, and the library stays smaller.
    #[inline(never)]
    pub(super) fn begin_with(&self, shared: Shared) -> Result<Begun, JoinError> {
        Ok(Begun {
            placed: self.place(&Arc::new(shared), FIRST, (None, None))?,
            is_attached: false,
        })
    }

    /// Enters a group as its first member.
    pub(super) fn enter_first_on_device(
        &self,
        begun: Begun,
        address: Address,
        lock: GroupLock,
        guard: &GroupGuard,
    ) -> Result<Membership, JoinError> {
        let steals = self.newcomer.steals();
        let shared = Arc::clone(&begun.placed.shared);
        self.newcomer
            .per_device
            .begin(shared.table(), self.cookie()?);
        if !begun.is_attached {
            let _device_guard = guard.device_guard().map_err(|error| self.steer(error))?;
            engine::attach_group(&shared, steals).map_err(EngineError::from)?;
        } else if steals {
            engine::check(self.newcomer, &shared)?;
        }
        let table = shared.table();
        table.show_program(self.steering, clock::monotonic_ns());
        let membership = self.take_slot(shared, Some(begun.placed), address, lock)?;
        self.end_replaced();
        self.open_rendezvous(&membership);
        Ok(membership)
    }

    /// Claims a slot of a group that has members, and places the newcomer's rings in the slot.
    /// Releases the group's lock while it places the rings. The group can't end in this time,
    /// because the newcomer has the group's descriptor store.
    pub(super) fn place_beside(
        &self,
        shared: &Arc<Shared>,
        lock: &GroupLock,
        guard: GroupGuard,
    ) -> Result<(GroupGuard, Option<Placed>), JoinError> {
        if shared.on_device.is_none() || self.newcomer.engine.is_none() {
            return Ok((guard, None));
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
        let slot = slot.map_err(|error| self.failed("the group's descriptor store", error))?;
        let slot = slot.ok_or(JoinError::Full(self.newcomer.fanout.id))?;
        // Without pages no other newcomer could see a claim, so keep the lock.
        let kept = (!lock.is_seen()).then_some(guard);
        let founders = kept.is_none().then_some(lock);
        let placed = self.place(shared, slot, (claim, founders))?;
        let guard = kept.map_or_else(|| lock.take(), Ok);
        Ok((guard.map_err(|error| self.steer(error))?, Some(placed)))
    }

    /// Directs the packets of a free slot into the newcomer's rings. With the group's lock, which
    /// the caller does not hold, a newcomer without privileges takes rings from the founder.
    #[inline(never)]
    fn place(
        &self,
        shared: &Arc<Shared>,
        slot: Slot,
        (claim, lock): (Option<Claim>, Option<&GroupLock>),
    ) -> Result<Placed, JoinError> {
        let on_device = shared.engine.zip(shared.on_device.as_ref());
        let on_device = on_device.zip(self.newcomer.engine.as_ref());
        let ((engine, on_device), asked) =
            on_device.ok_or_else(|| self.failed("the rings", io::ErrorKind::NotFound.into()))?;
        if asked.ask.outgoing {
            on_device.sees_sent().map_err(EngineError::from)?;
        }
        let opened = match (on_device.open(&asked.ask, None), lock) {
            (Err(refusal), Some(lock)) if refusal.lacks_privilege => {
                let made = self.made_by_founder(shared, lock, asked.ask.bytes, refusal)?;
                on_device.open(&asked.ask, Some(made))
            }
            (opened, _) => opened,
        };
        let io = opened.map_err(EngineError::from)?;
        self.note_before();
        shared.note_counted_before(slot);
        let admitted = io.admit(slot.0, self.cookie()?);
        admitted.map_err(|error| EngineError::from(engine.refusal("the rings", error)))?;
        faults::step();
        Ok(Placed {
            shared: Arc::clone(shared),
            slot,
            io: Some(io),
            _claim: claim,
        })
    }

    /// Takes rings of the size that is `asked`, which the group's founder has made. Without a
    /// founder and such rings, returns the `refusal` of the newcomer's own rings.
    fn made_by_founder(
        &self,
        shared: &Shared,
        lock: &GroupLock,
        asked: Option<u32>,
        refusal: Refusal,
    ) -> Result<Vec<OwnedFd>, EngineError> {
        let group = self.newcomer.fanout.id;
        let founder = || roster::founder(self.newcomer.bound.ifindex, group);
        let made = spares::take(shared, lock, asked, founder().is_some())?;
        made.ok_or_else(|| match founder() {
            Some(it) => EngineError::NoSpare { group, pid: it.pid },
            None => refusal.into(),
        })
    }

    /// Notes the device's packet count before the newcomer may get packets. Only the first call
    /// notes a count.
    fn note_before(&self) {
        let rejections = self.early.map(Member::rejections);
        let before = self.before.get();
        self.before
            .set(before.or_else(|| rejections.map(|it| it.before_joining())));
    }

    /// Checks that the device's packets still come to the group. If the newcomer's settings say
    /// `steal`, makes sure that the host does not get these packets.
    pub(super) fn check_device(
        &self,
        shared: &Shared,
        guard: &GroupGuard,
    ) -> Result<(), JoinError> {
        if shared.on_device.is_some() {
            let _device_guard = guard.device_guard().map_err(|error| self.steer(error))?;
            engine::check(self.newcomer, shared)?;
        }
        Ok(())
    }
}
