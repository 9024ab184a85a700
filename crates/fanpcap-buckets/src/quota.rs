//! Computes how many buckets each slot is due: its quota, rounded so that the fewest buckets move.

use crate::layout::{BUCKETS, SLOTS};
use crate::slot::{Counts, Ordered, Share};

/// [`BUCKETS`] as a `u32`, the type of the numbers in [`Counts`].
pub(crate) const ALL: u32 = 1 << BUCKETS.ilog2();

/// The number of buckets that each slot is due: its quota, rounded up or down. The sum of these
/// numbers is `all`, at most [`ALL`]. `None` if all weights are 0.
///
/// A slot's quota is `all` times its weight, divided by the sum of all weights. The slots
/// that own more buckets than their quota rounded down are rounded up first, because each of these
/// slots then gives away one bucket less. Of the other slots, those with the largest remainder are
/// rounded up; if remainders are equal, the lowest slot comes first.
pub(crate) fn due(shares: &[Share], owned: &Counts, all: u32) -> Option<Counts> {
    let weights = weights(shares);
    let total: u32 = weights.iter().sum();
    if total == 0 {
        return None;
    }
    let mut due = weights.map(|weight| weight * all / total);
    let mut fractions = Ordered::new();
    for (slot, weight) in weights.into_iter().enumerate() {
        let remainder = weight * all % total;
        if remainder > 0 {
            let gains = u64::from(owned[slot] <= due[slot]);
            fractions.push(((gains << 32) | u64::from(total - remainder), slot));
        }
    }
    fractions.sort_unstable();
    let missing = all - due.iter().sum::<u32>();
    for (_, slot) in fractions.into_iter().take(missing as usize) {
        due[slot] += 1;
    }
    Some(due)
}

/// The weight of each slot. If a slot has several shares, the one with the greatest weight counts.
/// So the sum of the weights is below 2^24, and each weight times [`BUCKETS`] is below 2^28: both
/// fit into 32 bits.
fn weights(shares: &[Share]) -> Counts {
    let mut weights = [0; SLOTS];
    for share in shares {
        let weight = &mut weights[share.slot.index()];
        *weight = u32::from(share.weight).max(*weight);
    }
    weights
}
