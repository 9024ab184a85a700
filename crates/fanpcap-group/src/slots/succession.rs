//! Succession: the buckets and the ring of a named member wait for the next member with that name.
//!
//! The member that is gone keeps its buckets, and packets still come into its ring. When the
//! successor's application looks for packets, the successor gets exactly these buckets and takes
//! over the ring. The group waits for a grace period, but no longer than until the ring is half
//! full. If no successor has come by then, the buckets are given away, like those of any member
//! that is gone.

use super::rounds::until_round;
use super::silence::until_check;
use super::{KernelOps, Slots, classes, unread};
use crate::table::{Row, State, Table, at};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::SLOTS;
use std::io;
use std::sync::atomic::Ordering;

/// How long the group waits for a successor, nanoseconds: first for the successor's join, then
/// again until the successor looks for packets.
pub(super) const GRACE_NS: u64 = 2_000_000_000;

/// The interval between two checks whether rings are half full, nanoseconds. A check takes longer
/// for large rings, because it maps them. The interval then grows, up to [`LOOK_NS_MAX`], so that
/// the checks take at most one part in [`LOOK_PART`] of the time.
const LOOK_NS: u64 = 20_000_000;
const LOOK_PART: u64 = 20;
const LOOK_NS_MAX: u64 = 500_000_000;

/// The digest of a member's name, by FNV-1a; never 0, which means no name.
pub(crate) fn digest(name: &str) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step).max(1)
}

/// The digest for one of several members that have the same name. `name` is the digest of the name,
/// and `nth` is the member's index among these members, from 0.
fn nth(name: u64, nth: u64) -> u64 {
    match nth {
        0 => name,
        nth => {
            let mixed = (name ^ nth).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ (mixed >> 29)).max(1)
        }
    }
}

/// The row that a leaving member gets. A member with a share keeps it, and is awaited if the member
/// has a name.
pub(super) fn left_by(table: Table<'_>, row: &Row) -> Row {
    let (state, weight) = match row.owns() {
        true if row.name != 0 => (State::Awaited, row.weight),
        true => (State::Dead, row.weight),
        false => (State::Dead, 0),
    };
    // Do not keep the member's own cookie as the taker: from now on it would mean that the lifeline
    // is cut.
    let taker = match unread::is_read(table, row) {
        true => row.taker,
        false => 0,
    };
    Row {
        state,
        weight,
        taker,
        ..*row
    }
}

/// Nanoseconds until the member `own` must look after members that are or may be gone, or after
/// itself if it has no share. `None` if the member `own` need not look after any member, nor after
/// itself. The caller needs no lock.
pub(crate) fn due_ns(table: Table<'_>, own: u64, now_ns: u64) -> Option<u64> {
    table.rows().filter_map(due_by(table, own, now_ns)).min()
}

/// Nanoseconds until the member `own` must look after the member in a slot.
pub(super) fn due_by(
    table: Table<'_>,
    own: u64,
    now_ns: u64,
) -> impl Fn((Slot, Row)) -> Option<u64> {
    let mut live = table.rows().filter(|(_, row)| row.state == State::Live);
    let has_others = live.any(|(_, row)| row.cookie != own);
    move |(slot, row)| match row.state {
        State::Newcomer if row.cookie == own => Some(0),
        State::Live if row.cookie == own && has_others => {
            let check = until_check(table, slot, now_ns);
            let round = until_round(table, slot, now_ns);
            Some(round.map_or(check, |round| round.min(check)))
        }
        State::Dead => classes::until_due(table, own, &row, now_ns),
        State::Awaited => Some(grace(&row, now_ns).min(until_look(table, now_ns))),
        State::Free | State::Newcomer | State::Live | State::TakenOver | State::Vacant => None,
    }
}

/// The member that a newcomer succeeds.
pub(super) fn predecessor(table: Table<'_>, newcomer: &Row) -> Option<Slot> {
    let is_it = |row: &Row| {
        let is_same = row.name == newcomer.name && row.class == newcomer.class;
        row.state == State::Awaited && row.name != 0 && is_same
    };
    let mut rows = table.rows();
    rows.find_map(|(slot, row)| is_it(&row).then_some(slot))
}

/// Nanoseconds left of the grace period. 0 if it is over, or if `since_ns` is later than `now_ns`
/// because another clock set it.
fn grace(row: &Row, now_ns: u64) -> u64 {
    GRACE_NS.saturating_sub(now_ns.wrapping_sub(row.since_ns))
}

/// Nanoseconds until the next check of the rings.
fn until_look(table: Table<'_>, now_ns: u64) -> u64 {
    let left = table.get(at::LOOK_NS).wrapping_sub(now_ns);
    // A larger value means that the time has passed, or that another clock set it.
    if left > LOOK_NS_MAX { 0 } else { left }
}

impl Table<'_> {
    /// Counts a succession. Counts each successor only once, even if the same change is completed a
    /// second time.
    fn count_takeover(&self, successor: u64) {
        let (word, last) = (self.get(at::TAKEOVERS), successor << 32);
        if word & !COUNT != last {
            self.set(at::TAKEOVERS, last | ((word & COUNT) + 1));
        }
    }

    /// How many members have been succeeded by members with their names.
    pub(crate) fn takeovers(&self) -> u64 {
        self.get(at::TAKEOVERS) & COUNT
    }
}

/// The bits of the word that hold the count.
const COUNT: u64 = u32::MAX as u64;

impl<G: KernelOps> Slots<'_, G> {
    /// The digest for a newcomer of this name: the first of the name's digests that no living
    /// member of the class has; 0 for no name. So the `k`th handle of a process succeeds the `k`th
    /// handle of the former process.
    pub(super) fn free_name(&self, name: u64, class: u8) -> u64 {
        let is_free = |digest: &u64| {
            let mut rows = self.table.rows();
            !rows.any(|(_, row)| {
                let is_member = matches!(row.state, State::Live | State::Newcomer);
                row.name == *digest && row.class == class && is_member
            })
        };
        let mut digests = (0..=SLOTS as u64).map(|at| nth(name, at));
        digests.find(is_free).filter(|_| name != 0).unwrap_or(0)
    }

    /// The member that a newcomer succeeds.
    pub(super) fn predecessor(&self, newcomer: &Row) -> Option<Slot> {
        predecessor(self.table, newcomer)
    }

    /// Called when a newcomer has joined. If the newcomer succeeds an awaited member, the wait
    /// starts again, this time until the newcomer looks for packets.
    pub(super) fn await_longer(&mut self, newcomer: Slot) {
        if let Some(slot) = self.predecessor(&self.table.row(newcomer)) {
            self.set_state(slot, State::Awaited);
        }
    }

    /// Gives the successor in slot `to` every bucket and rank, and the sticky id, of the member in
    /// slot `from`. The call can be repeated.
    pub(super) fn finish_succession(&mut self, from: Slot, to: Slot) {
        let mut moved = 0;
        let part = self.table.part(self.table.row(from).class);
        for (bucket, owner) in part.buckets.iter().enumerate() {
            if owner.load(Ordering::Relaxed) == from.0 {
                self.kernel.step();
                part.set_owner(bucket, to);
                moved += 1;
            }
        }
        for part in [part, self.table.everybody()] {
            let mut ranks = part.ranks();
            let its = ranks.iter_mut().filter(|it| **it == from);
            its.for_each(|it| *it = to);
            self.kernel.step();
            part.set_ranks(&ranks);
        }
        self.table.set(at::MOVED, moved);
        self.table.set(at::MOVED_NS, self.kernel.now_ns());
        let left = self.table.row(from);
        self.change_row(
            from,
            &Row {
                state: State::Dead,
                weight: 0,
                ..left
            },
        );
        let sticky_id = left.sticky_id;
        let row = self.table.row(to);
        self.table.set_row(to, &Row { sticky_id, ..row });
        self.set_state(to, State::Live);
        self.table.count_takeover(row.cookie);
        self.finish();
    }

    /// Cuts the hung-up lifelines of awaited members. Ends the wait for successors that do not come
    /// in time. `living` are the sockets of living members.
    pub(super) fn look_after_awaited(&mut self, living: &[u64]) -> io::Result<()> {
        let rows = self.table.rows();
        let awaited: Vec<(Slot, Row)> = rows
            .filter(|(_, row)| row.state == State::Awaited)
            .collect();
        if awaited.is_empty() {
            return Ok(());
        }
        let now_ns = self.kernel.now_ns();
        let looks = until_look(self.table, now_ns) == 0;
        let mut ended = Vec::new();
        for (slot, row) in awaited {
            if row.taker == 0 && !living.contains(&row.cookie) {
                self.kernel.step();
                self.kernel.cut(row.cookie)?;
                self.kernel.step();
                let taker = row.cookie;
                self.table.set_row(slot, &Row { taker, ..row });
            }
            if grace(&row, now_ns) == 0 || (looks && self.kernel.is_half_full(row.cookie)) {
                ended.push(slot);
            }
        }
        if looks {
            let took_ns = self.kernel.now_ns().wrapping_sub(now_ns);
            let after_ns = took_ns
                .saturating_mul(LOOK_PART)
                .clamp(LOOK_NS, LOOK_NS_MAX);
            self.table.set(at::LOOK_NS, now_ns.wrapping_add(after_ns));
        }
        // The member that takes the ring gives the buckets away.
        for slot in ended {
            self.set_state(slot, State::Dead);
        }
        Ok(())
    }
}
