//! A newcomer takes a slot.

use super::{KernelOps, Slots};
use crate::table::{Journal, Row, State, at};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::SLOTS;
use std::io;

/// One position of the kernel's array is for newcomers, before they move into their slots.
const MEMBERS_MAX: usize = SLOTS - 1;

/// Why a newcomer has not joined.
#[derive(Debug)]
pub(crate) enum Unjoined<R> {
    /// Every slot is taken.
    Full,
    /// The kernel does not let the newcomer into the group.
    Refused(R),
    /// The descriptor store has no room, or can't be read.
    FdStore(io::Error),
}

impl<R> From<io::Error> for Unjoined<R> {
    fn from(error: io::Error) -> Self {
        Self::FdStore(error)
    }
}

impl<'a, G: KernelOps> Slots<'a, G> {
    /// The first slot that a newcomer may have and for which `claims` succeeds.
    pub(crate) fn choose(
        &mut self,
        claims: &mut dyn FnMut(Slot) -> bool,
    ) -> io::Result<Option<Slot>> {
        self.prepare()?;
        Ok(self.open_slots().find(|slot| claims(*slot)))
    }

    /// The slots that a newcomer may have: placeholders, free slots, and slots beyond the array's
    /// end. Any newcomer may have the first slot beyond the end. Only newcomers on an engine use
    /// the slots after this one, when they leave earlier slots to other newcomers.
    fn open_slots(&self) -> impl Iterator<Item = Slot> + use<'a, G> {
        let table = self.table;
        let is_open = move |slot: &Slot| {
            let is_beyond = usize::from(slot.0) >= table.positions();
            is_beyond || matches!(table.row(*slot).state, State::Vacant | State::Free)
        };
        (0..=u8::MAX).map(Slot).take(MEMBERS_MAX).filter(is_open)
    }

    /// Joins a newcomer. If other members own buckets, the newcomer owns none yet. Returns the
    /// newcomer's slot: the `chosen` slot, or else the first slot that the newcomer may have.
    pub(crate) fn join(
        &mut self,
        newcomer: &Row,
        chosen: Option<Slot>,
    ) -> Result<Slot, Unjoined<G::Refused>> {
        self.prepare()?;
        self.mark_gone(newcomer.cookie)?;
        let downs = self.downs(newcomer.cookie)?;
        let is_it = |slot: &Slot| chosen.is_none_or(|it| it == *slot);
        let slot = self.open_slots().find(is_it).ok_or(Unjoined::Full)?;
        self.replace(&self.table.row(slot));
        self.table.set_newcomer(&Row {
            state: State::Newcomer,
            since_ns: self.kernel.now_ns(),
            name: self.free_name(newcomer.name, newcomer.class),
            sticky_id: self.table.free_sticky_id(newcomer.cookie, slot),
            downs,
            ..*newcomer
        });
        self.note(Journal::Join(slot));
        self.kernel.step();
        if let Err(error) = self.kernel.deposit() {
            self.undo_join(slot, newcomer)?;
            return Err(error.into());
        }
        self.kernel.step();
        if let Err(refused) = self.kernel.enter(slot) {
            self.undo_join(slot, newcomer)?;
            return Err(Unjoined::Refused(refused));
        }
        self.finish_join(slot)?;
        self.await_longer(slot);
        match self.has_owner(newcomer.class) {
            true => self.follow()?,
            false => self.balance(),
        }
        Ok(slot)
    }

    pub(super) fn repair_join(&mut self, slot: Slot) -> io::Result<()> {
        let newcomer = self.table.newcomer();
        match self.kernel.has_entered(newcomer.cookie)? {
            Some(true) => self.finish_join(slot),
            Some(false) | None => self.undo_join(slot, &newcomer),
        }
    }

    fn undo_join(&mut self, slot: Slot, newcomer: &Row) -> io::Result<()> {
        self.kernel.step();
        self.kernel.leave(slot)?;
        self.kernel.step();
        self.kernel.withdraw(newcomer.cookie, newcomer.member)?;
        self.kernel.step();
        self.kernel.cut(newcomer.cookie)?;
        self.note(Journal::Nothing);
        Ok(())
    }

    fn finish_join(&mut self, slot: Slot) -> io::Result<()> {
        self.withdraw_replaced()?;
        self.kernel.step();
        self.table.set_row(slot, &self.table.newcomer());
        self.kernel.step();
        let positions = self.table.positions().max(usize::from(slot.0) + 1);
        self.table.set(at::POSITIONS, positions as u64);
        self.finish();
        Ok(())
    }
}
