//! Rounds of a balanced group. They move buckets from members that get more than their share of the
//! packets to members that get less.
//!
//! The group's BPF program counts the packets of each bucket. A round is made by the first member
//! that finds it due, usually the member in the lowest slot. The table keeps all numbers of one
//! round that the next round needs. A round has no journal, since each of its moves is complete by
//! itself.

use super::silence::until;
use super::{KernelOps, Slots, classes};
use crate::table::{Elephant, Loads, Part, State, Table, at};
use fanpcap_buckets::layout::SLOTS;
use fanpcap_buckets::leveling::{Leveling, Load, Moves, Shift, imbalance};
use fanpcap_buckets::{self as buckets, Move, Share, Slot};
use fanpcap_config::steering::Balance;
use std::sync::atomic::Ordering;

/// The interval between rounds, nanoseconds.
pub(super) const ROUND_NS: u64 = 250_000_000;

/// How much later a round is due for a member than for the member in the slot before, so that
/// usually only one member finds it due. Slots after [`LAST`] add no delay.
const STAGGER_NS: u64 = 100_000_000;
const LAST: u8 = 10;

/// After a pause longer than this, the counts may have wrapped. So the next round only notes the
/// counts, and moves nothing.
pub(super) const PAUSE_NS: u64 = 5_000_000_000;

/// A round needs this many packets for each member. With this many packets, chance alone makes the
/// members' loads differ by 2 %. With fewer packets, chance makes them differ more.
pub(super) const PACKETS: u64 = 2500;

/// Nanoseconds until the member in this slot shall do a round; `None` if the group is not balanced.
pub(super) fn until_round(table: Table<'_>, slot: Slot, now_ns: u64) -> Option<u64> {
    table.balance()?;
    let later_ns = u64::from(slot.0.min(LAST)) * STAGGER_NS;
    Some(until(table.get(at::ROUND_NS), later_ns, ROUND_NS, now_ns))
}

impl<G: KernelOps> Slots<'_, G> {
    /// Does a round if a round is due for the slot of the member `own` and enough packets have
    /// come. The caller has completed any change that was under way.
    pub(crate) fn level(&mut self, own: u64) {
        let (table, now_ns) = (self.table, self.kernel.now_ns());
        let is_due = |slot| until_round(table, slot, now_ns) == Some(0);
        let is_due = table.slot_of(own).is_some_and(is_due);
        let Some(balance) = table.balance().filter(|_| is_due) else {
            return;
        };
        let late_ns = now_ns.wrapping_sub(table.get(at::ROUND_NS));
        table.set(at::ROUND_NS, now_ns.wrapping_add(ROUND_NS));
        if self.lead.is_some() {
            return;
        }
        if late_ns > PAUSE_NS {
            table.take_loads(now_ns);
            return;
        }
        let shares = classes::shares(table, 0);
        // An awaited member keeps its buckets for its successor. A dead member keeps its buckets
        // for the member that takes it over. So there is no round while the group has such members.
        let mut rows = table.rows();
        let is_kept = rows.any(|(_, row)| row.state == State::Awaited || row.keeps());
        if is_kept || table.packets() < PACKETS * shares.len() as u64 {
            return;
        }
        let shifts = next_shifts(table, &shares, balance, now_ns);
        for shift in &shifts {
            self.kernel.step();
            if let Ok(slot) = u8::try_from(shift.to) {
                table.default.set_owner(shift.bucket, Slot(slot));
            }
        }
        if !shifts.is_empty() {
            table.note_moved(shifts.len(), now_ns);
            self.finish();
        }
    }
}

/// Returns the moves of a round. Notes the result of the round, and the numbers that the next round
/// needs.
fn next_shifts(table: Table<'_>, shares: &[Share], balance: Balance, now_ns: u64) -> Vec<Shift> {
    let Loads { packets, idle } = table.take_loads(now_ns);
    let mut owners = vec![0; packets.len()];
    for (owner, bucket) in owners.iter_mut().zip(table.default.buckets) {
        *owner = usize::from(bucket.load(Ordering::Relaxed));
    }
    let mut weights = [0; SLOTS];
    for share in shares {
        weights[usize::from(share.slot.0)] = share.weight;
    }
    let load = Load {
        packets: &packets,
        owners: &owners,
        weights: &weights,
    };
    let moves = match balance {
        Balance::Idle => Moves::Idle(&idle),
        Balance::All => Moves::All,
    };
    let round = Leveling::after(table.received()).round(&load, moves);
    let sum = packets.iter().sum::<u64>().max(1);
    let elephant = |at| {
        let bucket: usize = *round.elephants.get(at)?;
        Some(Elephant {
            bucket: u16::try_from(bucket).ok()?,
            slot: Slot(u8::try_from(owners[bucket]).ok()?),
            part: u16::try_from(packets[bucket] * 1000 / sum).ok()?,
        })
    };
    table.set_leveled(imbalance(&load), std::array::from_fn(elephant));
    table.set_received(&round.shifts);
    round.shifts
}

/// The fewest moves after which each member owns its share of the buckets. In a balanced group, a
/// member that owns buckets has as its share the number of buckets that it owns now. So no bucket
/// moves between such members. The other members get buckets by their weights.
pub(super) fn plan(table: Table<'_>, part: Part<'_>, shares: &[Share]) -> Vec<Move> {
    let owners = part.owners(shares);
    let mut owned = [0; SLOTS];
    for owner in owners.iter().flatten() {
        owned[usize::from(owner.0)] += 1;
    }
    let of = |share: &Share| owned[usize::from(share.slot.0)];
    let (mut all, mut weight) = (0, 0);
    for share in shares.iter().filter(|share| of(share) > 0) {
        all += of(share);
        weight += u32::from(share.weight);
    }
    let mut kept = shares.to_vec();
    if table.balance().is_some() && weight > 0 {
        let due = |share: &Share| match of(share) {
            0 => all * u32::from(share.weight) / weight,
            owned => owned,
        };
        let most = shares.iter().map(due).max().unwrap_or(0);
        // The scale makes the largest number of buckets fit into a 16-bit weight, and keeps the
        // ratios.
        let scale = most.div_ceil(u16::MAX.into()).max(1);
        for share in &mut kept {
            let due = (due(share) / scale).max(1);
            share.weight = u16::try_from(due).unwrap_or(u16::MAX);
        }
    }
    buckets::plan(&owners, &kept)
}
