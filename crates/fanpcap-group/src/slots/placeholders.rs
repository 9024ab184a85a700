//! Placeholders: slots whose members are gone and whose rings have been read to the end.

use super::{KernelOps, Slots};
use crate::table::{FinalCounters, Journal, Row, State, at};
use fanpcap_buckets::Slot;
use std::io;

impl<G: KernelOps> Slots<'_, G> {
    /// Makes a slot a placeholder, after the ring of its dead member has been read to the end. If
    /// the slot is at the array's end, gives the slot up.
    pub(crate) fn vacate(&mut self, cookie: u64, final_counters: &FinalCounters) -> io::Result<()> {
        self.prepare()?;
        let Some(slot) = self.table.slot_of(cookie) else {
            return Ok(());
        };
        if matches!(self.table.row(slot).state, State::Dead | State::TakenOver) {
            let sums = self.table.gone().with(final_counters);
            let sums = self.table.prepare_gone(&sums);
            self.note(Journal::Vacate(slot, sums));
            self.finish_vacating(slot, sums);
        }
        self.trim()
    }

    pub(super) fn finish_vacating(&mut self, slot: Slot, sums: u8) {
        self.kernel.step();
        self.table.set(at::SUMS_IN_USE, sums.into());
        self.set_state(slot, State::Vacant);
        self.finish();
    }

    /// Gives up placeholders at the array's end.
    fn trim(&mut self) -> io::Result<()> {
        while let Some(last) = self.table.positions().checked_sub(1) {
            let Ok(slot) = u8::try_from(last).map(Slot) else {
                break;
            };
            let row = self.table.row(slot);
            // On an engine there may be free slots: a newcomer left such a slot to another
            // newcomer, which never joined.
            if !matches!(row.state, State::Vacant | State::Free) {
                break;
            }
            self.replace(&row);
            self.note(Journal::Trim(slot));
            self.finish_trim(slot)?;
        }
        Ok(())
    }

    pub(super) fn finish_trim(&mut self, slot: Slot) -> io::Result<()> {
        self.withdraw_replaced()?;
        self.kernel.step();
        self.table.set_row(slot, &Row::default());
        self.table.set(at::POSITIONS, slot.0.into());
        self.finish();
        Ok(())
    }

    /// Notes the placeholder that is about to be removed; the default row means that no placeholder
    /// is removed.
    pub(super) fn replace(&mut self, row: &Row) {
        self.table.set(at::REPLACED, row.cookie);
        self.table.set(at::REPLACED_MEMBER, row.member);
    }

    pub(super) fn withdraw_replaced(&mut self) -> io::Result<()> {
        let replaced = [at::REPLACED, at::REPLACED_MEMBER].map(|at| self.table.get(at));
        self.kernel.step();
        match replaced {
            [0, _] => Ok(()),
            [cookie, member] => self.kernel.withdraw(cookie, member),
        }
    }
}
