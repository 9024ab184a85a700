//! Rounds of a balanced group: buckets move from members that get more than their share of the
//! packets to members that get less.
//!
//! The group's BPF program counts the packets of each bucket. Whichever member is first does the
//! next round, as a rule the one of the lowest slot. All that a round needs of the one before is in
//! the table. A round has no journal: each of its moves is complete.

use super::silence::until;
use super::{Ground, Slots, classes};
use crate::table::{Elephant, Part, State, Table, at};
use fanpcap_buckets::layout::SLOTS;
use fanpcap_buckets::leveling::{Leveling, Load, Moves, imbalance};
use fanpcap_buckets::{self as buckets, Move, Share, Slot};
use fanpcap_config::steering::Balance;
use std::io;
use std::sync::atomic::Ordering;

/// How often there is a round, nanoseconds.
pub(super) const ROUND_NS: u64 = 250_000_000;

/// By how much later a member does a round than the live one in the slot before.
const STAGGER_NS: u64 = 100_000_000;

/// Packets of a round for each member at least. With fewer, members differ by chance: of so many,
/// by 2 %.
pub(super) const PACKETS: u64 = 2500;

/// Nanoseconds until the member `own` is to do a round; `None` where there is nothing to level.
/// Needs no lock.
pub(crate) fn until_round(table: Table<'_>, own: u64, now_ns: u64) -> Option<u64> {
    table.balance()?;
    let live = || table.rows().filter(|(_, row)| row.state == State::Live);
    let before = live().position(|(_, row)| row.cookie == own)?;
    let later_ns = before as u64 * STAGGER_NS;
    let left = || until(table.get(at::ROUND_NS), later_ns, ROUND_NS, now_ns);
    (live().count() > 1).then(left)
}

impl<G: Ground> Slots<'_, G> {
    /// Does a round, if one is due to the member `own`, and if enough packets have come.
    pub(crate) fn level(&mut self, own: u64) -> io::Result<()> {
        self.repair()?;
        let (table, now_ns) = (self.table, self.ground.now_ns());
        let balance = table.balance();
        let Some(balance) = balance.filter(|_| until_round(table, own, now_ns) == Some(0)) else {
            return Ok(());
        };
        table.set(at::ROUND_NS, now_ns.wrapping_add(ROUND_NS));
        let shares = classes::shares(table, 0);
        let loads = table.loads(now_ns);
        let packets: Vec<u64> = loads.iter().map(|load| load.packets).collect();
        let sum: u64 = packets.iter().sum();
        // One that is awaited keeps its buckets for its successor.
        let mut rows = table.rows();
        let is_awaited = rows.any(|(_, row)| row.state == State::Awaited);
        if is_awaited || sum < PACKETS * shares.len() as u64 {
            return Ok(());
        }
        let idle: Vec<bool> = loads.iter().map(|load| load.is_idle).collect();
        let moves = match balance {
            Balance::Idle => Moves::Idle(&idle),
            Balance::All => Moves::All,
        };
        self.move_loads(&shares, &packets, moves);
        table.note_loads(&loads, now_ns);
        Ok(())
    }

    fn move_loads(&mut self, shares: &[Share], packets: &[u64], moves: Moves<'_>) {
        let (table, part) = (self.table, self.table.default);
        let owners = part.buckets.iter().map(|it| it.load(Ordering::Relaxed));
        let owners: Vec<usize> = owners.map(usize::from).collect();
        let mut weights = [0; SLOTS];
        for share in shares {
            weights[usize::from(share.slot.0)] = share.weight;
        }
        let load = Load {
            packets,
            owners: &owners,
            weights: &weights,
        };
        let round = Leveling::after(table.received()).round(&load, moves);
        let sum = packets.iter().sum::<u64>().max(1);
        let elephant = |&bucket: &usize| {
            Some(Elephant {
                bucket: u16::try_from(bucket).ok()?,
                slot: Slot(u8::try_from(owners[bucket]).ok()?),
                part: u16::try_from(packets[bucket] * 1000 / sum).ok()?,
            })
        };
        let elephants: Vec<Elephant> = round.elephants.iter().filter_map(elephant).collect();
        table.set_leveled(imbalance(&load), &elephants);
        table.set_received(round.shifts.iter().map(|shift| shift.to));
        for shift in &round.shifts {
            self.ground.step();
            if let Ok(slot) = u8::try_from(shift.to) {
                part.set_owner(shift.bucket, Slot(slot));
            }
        }
        if !round.shifts.is_empty() {
            self.note_moved(round.shifts.len());
            self.finish();
        }
    }
}

/// The fewest moves after which each member owns its share of the buckets. In a balanced group
/// the shares of members that own buckets are by how many they own, so that none moves between
/// these. The others get what their weights are worth beside them.
pub(super) fn plan(table: Table<'_>, part: Part<'_>, shares: &[Share]) -> Vec<Move> {
    let owners = part.owners(shares);
    let mut owned = [0; SLOTS];
    for owner in owners.iter().flatten() {
        owned[usize::from(owner.0)] += 1;
    }
    let of = |share: &Share| owned[usize::from(share.slot.0)];
    let has_some = shares.iter().filter(|share| of(share) > 0);
    let weight: u32 = has_some.map(|share| u32::from(share.weight)).sum();
    if table.balance().is_none() || weight == 0 {
        return buckets::plan(&owners, shares);
    }
    let all: u32 = owned.iter().sum();
    let kept = shares.iter().map(|share| {
        let due = match of(share) {
            0 => (all * u32::from(share.weight) / weight).max(1),
            owned => owned,
        };
        Share {
            weight: u16::try_from(due).unwrap_or(u16::MAX),
            ..*share
        }
    });
    buckets::plan(&owners, &kept.collect::<Vec<Share>>())
}
