//! Checks that live slots keep their rank, and that as few ranks change as possible.

use fanpcap_buckets::{Slot, ranks};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn slots(numbers: impl IntoIterator<Item = u8>) -> Vec<Slot> {
    numbers.into_iter().map(Slot).collect()
}

#[test]
fn a_newcomer_comes_last() {
    assert_eq!(ranks(&slots([4, 0]), &slots([0, 2, 4])), slots([4, 0, 2]));
    assert_eq!(ranks(&[], &slots([5, 3])), slots([3, 5]));
}

#[test]
fn the_last_takes_the_rank_of_who_is_gone() {
    assert_eq!(
        ranks(&slots([4, 0, 2, 7]), &slots([0, 2, 7])),
        slots([7, 0, 2])
    );
    assert_eq!(ranks(&slots([4, 0, 2]), &slots([0, 4])), slots([4, 0]));
    assert_eq!(ranks(&slots([4, 0, 2]), &[]), []);
}

#[test]
fn a_newcomer_takes_the_rank_of_who_is_gone() {
    assert_eq!(
        ranks(&slots([4, 0, 2]), &slots([0, 2, 1])),
        slots([1, 0, 2])
    );
}

proptest! {
    #[test]
    fn all_who_live_have_a_rank_and_no_more_change_than_must(
        old in btree_set(any::<u8>(), 0..40),
        live in btree_set(any::<u8>(), 0..40),
        seed in any::<prop::sample::Index>(),
    ) {
        let mut old = slots(old);
        let turn = seed.index(old.len().max(1));
        old.rotate_left(turn);
        let live = slots(live);
        let new = ranks(&old, &live);
        prop_assert_eq!(new.iter().collect::<BTreeSet<_>>(), live.iter().collect());
        prop_assert_eq!(new.len(), live.len());
        for (rank, &slot) in new.iter().enumerate() {
            // A live slot that had this rank keeps it.
            let had = old.get(rank).filter(|had| live.contains(had));
            prop_assert!(had.is_none_or(|&had| had == slot));
        }
        let reversed: Vec<Slot> = live.into_iter().rev().collect();
        prop_assert_eq!(ranks(&old, &reversed), new);
    }

    #[test]
    fn slots_that_are_there_twice_count_once(
        old in vec(0_u8..8, 0..20),
        live in vec(0_u8..8, 0..20),
    ) {
        let new = ranks(&slots(old), &slots(live.clone()));
        let different: BTreeSet<_> = slots(live).into_iter().collect();
        prop_assert_eq!(new.len(), different.len());
        prop_assert_eq!(new.into_iter().collect::<BTreeSet<_>>(), different);
    }
}
