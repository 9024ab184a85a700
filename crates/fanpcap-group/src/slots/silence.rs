//! Members that live but do not read lose their share until they look for packets again. There are
//! several reasons why a member does not read: the application's callback may hang, the process may
//! be stopped, or a forked child may merely hold its parent's descriptors.
//!
//! About every two seconds, one member checks all rings. For each ring with unread packets, this
//! member notes in the table how far the ring's reader has come.

use super::{KernelOps, Slots, classes};
use crate::table::{Journal, State, Table, at};
use fanpcap_buckets::Slot;
use std::io;

/// A member that has unread packets and takes none for this many nanoseconds loses its share.
pub(crate) const SILENT_NS: u64 = 10_000_000_000;

/// The interval between checks, nanoseconds.
pub(crate) const CHECK_NS: u64 = 2_000_000_000;

/// How much later a member checks than the member in the slot before, so that only one member
/// checks.
const STAGGER_NS: u64 = 500_000;

/// Nanoseconds until the member in this slot shall check all rings.
pub(super) fn until_check(table: Table<'_>, slot: Slot, now_ns: u64) -> u64 {
    let later_ns = u64::from(slot.0) * STAGGER_NS;
    until(table.get(at::CHECK_NS), later_ns, CHECK_NS, now_ns)
}

/// How many nanoseconds are left until `due_ns + later_ns`, for an event that is due every
/// `period_ns`.
pub(super) fn until(due_ns: u64, later_ns: u64, period_ns: u64, now_ns: u64) -> u64 {
    let left = due_ns.wrapping_add(later_ns).wrapping_sub(now_ns);
    // A larger value means that the time has passed, or that another clock set it.
    if left > period_ns + later_ns { 0 } else { left }
}

impl<G: KernelOps> Slots<'_, G> {
    /// Gives away the share of members that do not read, if a check for such members is due. The
    /// member `own` reads.
    pub(crate) fn look_for_silent(&mut self, own: u64) -> io::Result<()> {
        let now_ns = self.kernel.now_ns();
        let live = self
            .table
            .rows()
            .filter(|(_, row)| row.state == State::Live);
        let live: Vec<(Slot, u64)> = live.map(|(slot, row)| (slot, row.cookie)).collect();
        let own_slot = live.iter().find(|(_, cookie)| *cookie == own);
        let is_time = own_slot
            .is_some_and(|(slot, _)| live.len() > 1 && until_check(self.table, *slot, now_ns) == 0);
        if !is_time {
            return Ok(());
        }
        let late_ns = now_ns.wrapping_sub(self.table.get(at::CHECK_NS));
        self.table.set(at::CHECK_NS, now_ns.wrapping_add(CHECK_NS));
        let unread = self.kernel.unread()?;
        let mut silent = Vec::new();
        for (slot, cookie) in live.into_iter().filter(|(_, cookie)| *cookie != own) {
            let progress = unread.iter().find(|(it, _)| *it == cookie);
            let seen = progress.map_or(0, |(_, progress)| mixed(cookie, *progress));
            let word = at::SEEN + 2 * usize::from(slot.0);
            // If no member could check the rings in time, perhaps no member could read either. In
            // this case, begin the ten seconds again.
            if self.table.get(word) != seen || late_ns > CHECK_NS {
                self.table.set(word + 1, now_ns);
                self.table.set(word, seen);
            } else if seen != 0 && now_ns.wrapping_sub(self.table.get(word + 1)) >= SILENT_NS {
                silent.push(slot);
            }
        }
        self.replace_silent(&silent);
        Ok(())
    }

    /// Gives away the share of the members for which `hangs` returns true. The caller sees which
    /// members read, so this function looks at no ring. The next check is due in [`CHECK_NS`].
    pub(crate) fn replace_hanging(&mut self, hangs: &dyn Fn(u64) -> bool) {
        let now_ns = self.kernel.now_ns();
        self.table.set(at::CHECK_NS, now_ns.wrapping_add(CHECK_NS));
        let rows = self.table.rows();
        let silent = rows.filter(|(_, row)| row.state == State::Live && hangs(row.cookie));
        let silent: Vec<Slot> = silent.map(|(slot, _)| slot).collect();
        self.replace_silent(&silent);
    }

    fn replace_silent(&mut self, silent: &[Slot]) {
        let silent = self.undecided_beside(classes::replaceable(self.table, silent));
        // In a group that follows another, the lead decides which members are silent.
        if !silent.is_empty() && self.lead.is_none() {
            self.note(Journal::Balance);
            for slot in silent {
                self.set_state(slot, State::Newcomer);
            }
            self.finish_balance();
        }
    }
}

/// A digest of how far a reader has come; never 0.
fn mixed(cookie: u64, progress: u64) -> u64 {
    (cookie.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ progress).max(1)
}
