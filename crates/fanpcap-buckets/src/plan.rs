//! Plans which buckets get another owner when members or weights change.

use crate::layout::{BUCKETS, SLOTS};
use crate::quota;
use crate::slot::{Counts, Ordered, Share, Slot};

#[cfg(test)]
mod tests;

/// The owner of each bucket; `None` before the first member owns any bucket.
pub type Owners = [Option<Slot>; BUCKETS];

/// A bucket that gets another owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Index of the bucket, below [`BUCKETS`].
    pub bucket: usize,
    /// Its new owner.
    pub to: Slot,
}

/// The fewest moves after which each slot owns its quota of the buckets, in the order of the
/// buckets.
///
/// A slot's quota is [`BUCKETS`] times its weight, divided by the sum of all weights, and rounded
/// up or down. A slot without a share, or with weight 0, owns nothing afterwards. If a slot has
/// several shares, the share with the greatest weight counts. If all weights are 0, no bucket
/// moves.
///
/// With equal weights, a join moves buckets only to the newcomer, and a leave moves only the
/// leaving member's buckets. With unequal weights, rounding may rarely move other buckets.
///
/// The order of `shares` does not matter. If no bucket has an owner yet, neighbouring buckets go to
/// different slots. If a slot leaves and later joins again, it gets nearly the same buckets as
/// before.
pub fn plan(owners: &Owners, shares: &[Share]) -> Vec<Move> {
    let owned = count(owners);
    let due = quota::due(shares, &owned, quota::ALL);
    due.map_or_else(Vec::new, |due| moves(owners, &FREE, &owned, &due))
}

/// No bucket is bound to a slot.
static FREE: Owners = [None; BUCKETS];

/// How many buckets each slot owns.
pub(crate) fn count(owners: &Owners) -> Counts {
    let mut owned = [0; SLOTS];
    for owner in owners.iter().flatten() {
        owned[owner.index()] += 1;
    }
    owned
}

/// The fewest moves after which each bucket of `bound` belongs to its slot there, and each slot
/// owns as many buckets as it is `due`. `owned` are the buckets that the slots own before, those of
/// `bound` counted for their slots there. No slot is due less than it has in `bound`.
pub(crate) fn moves(owners: &Owners, bound: &Owners, owned: &Counts, due: &Counts) -> Vec<Move> {
    let lacking = difference(due, owned);
    let moving = choose(owners, bound, difference(owned, due), &lacking);
    let mut turns = turns(&lacking);
    let mut next = |bucket: usize| moving[bucket].then(|| turns.next()).flatten();
    let step = |bucket: usize| {
        let to = bound[bucket].or_else(|| next(bucket))?;
        (owners[bucket] != Some(to)).then_some(Move { bucket, to })
    };
    (0..BUCKETS).filter_map(step).collect()
}

/// For each slot, its number in `counts` minus its number in `others`, or 0 if the difference is
/// negative.
fn difference(counts: &Counts, others: &Counts) -> Counts {
    std::array::from_fn(|slot| counts[slot].saturating_sub(others[slot]))
}

/// Chooses the buckets that move, of those that are not `bound`: all buckets without an owner, and
/// as many buckets of each slot as its surplus.
///
/// A slot gives away those of its buckets that have the lowest [`lot`] for the slot that lacks most
/// buckets. The lots of a slot are always the same. So if this slot leaves and joins again, it gets
/// nearly the same buckets, which are spread over the table.
fn choose(
    owners: &Owners,
    bound: &Owners,
    mut surplus: Counts,
    lacking: &Counts,
) -> [bool; BUCKETS] {
    let newcomer = Slot::all()
        .rev()
        .max_by_key(|slot| lacking[slot.index()])
        .unwrap_or(Slot(0));
    let mut moving = owners.map(|owner| owner.is_none());
    let mut lots = Ordered::new();
    for (bucket, owner) in owners.iter().enumerate() {
        let is_free = bound[bucket].is_none();
        if is_free && owner.is_some_and(|owner| surplus[owner.index()] > 0) {
            lots.push((lot(newcomer, bucket), bucket));
        }
    }
    lots.sort_unstable();
    for (_, bucket) in lots {
        if let Some(owner) = owners[bucket].filter(|owner| surplus[owner.index()] > 0) {
            surplus[owner.index()] -= 1;
            moving[bucket] = true;
        }
    }
    moving
}

/// A pseudo-random number for a slot and a bucket. Each pair has a different number. The function
/// is the finalizer of MurmurHash3, a bijection of `u64`.
fn lot(slot: Slot, bucket: usize) -> u64 {
    let mut hash = (slot.index() * BUCKETS + bucket) as u64;
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The slots that lack buckets; each slot occurs once for each bucket that it lacks. A slot's turns
/// are spread evenly over the whole list, so that neighbouring buckets go to different slots.
fn turns(lacking: &Counts) -> impl Iterator<Item = Slot> {
    let mut turns = Ordered::new();
    for (slot, &lacks) in lacking.iter().enumerate() {
        for turn in 0..u64::from(lacks) {
            // The middle of the turn's interval. The intervals of a slot's turns have equal
            // lengths, together 2^40.
            turns.push((((2 * turn + 1) << 39) / u64::from(lacks), slot));
        }
    }
    turns.sort_unstable();
    turns.into_iter().map(|(_, slot)| Slot::at(slot))
}
