//! Plans the buckets of a group that stands beside another group: both have members of the same
//! processes, and get packets of the same flows by different devices.

use crate::plan::{self, Move, Owners};
use crate::quota::{self, ALL};
use crate::slot::{Counts, Share};

/// The moves after which the buckets in `bound` belong to their slots there, and the other buckets,
/// which are free, are shared out.
///
/// A bucket of `bound` belongs to a process that has a member in both groups: the other group says
/// which. If that slot has no share here, the bucket is free. The free buckets level the members:
/// a slot with free buckets has no more than its quota of all buckets, as far as that is possible
/// without a bound bucket, and a slot that has more bound buckets gets no free one. Of the free
/// buckets, as few as possible move.
///
/// If nothing is bound, this is [`crate::plan`].
pub fn plan_beside(owners: &Owners, shares: &[Share], bound: &Owners) -> Vec<Move> {
    let has_share = |it: &Share, slot| it.slot == slot && it.weight > 0;
    let bound = bound.map(|slot| slot.filter(|slot| shares.iter().any(|it| has_share(it, *slot))));
    let after: Owners = std::array::from_fn(|bucket| bound[bucket].or(owners[bucket]));
    let owned = plan::count(&after);
    let due = due(shares, &owned, &plan::count(&bound));
    due.map_or_else(Vec::new, |due| plan::moves(owners, &bound, &owned, &due))
}

/// The number of buckets that each slot is due, of which it has some `bound`. `None` if all weights
/// are 0.
///
/// A slot that has more than its quota bound keeps these, and the other slots share the rest. Then
/// their quotas are less, so this is repeated. It ends: the quotas of the slots that are left have
/// room for all their bound buckets, so not all of them can have more than their quotas.
fn due(shares: &[Share], owned: &Counts, bound: &Counts) -> Option<Counts> {
    let mut sharing = shares.to_vec();
    let mut all = ALL;
    let mut due = quota::due(&sharing, owned, all)?;
    loop {
        let has_more = |it: &Share| bound[it.slot.index()] > due[it.slot.index()];
        let more: Vec<Share> = sharing.iter().copied().filter(has_more).collect();
        if more.is_empty() {
            break;
        }
        sharing.retain(|it| !has_more(it));
        let mut slots: Vec<usize> = more.iter().map(|it| it.slot.index()).collect();
        slots.sort_unstable();
        slots.dedup();
        all -= slots.iter().map(|slot| bound[*slot]).sum::<u32>();
        due = quota::due(&sharing, owned, all)?;
    }
    for (due, bound) in due.iter_mut().zip(bound) {
        *due = (*bound).max(*due);
    }
    Some(due)
}
