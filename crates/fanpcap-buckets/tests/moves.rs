//! Properties of plans for every table and every set of shares, and for sequences of changes to a
//! group.

use fanpcap_buckets::layout::{BUCKETS, SLOTS};
use fanpcap_buckets::{Move, Owners, Share, Slot, plan};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The weights above 0. If a slot has several weights, the greatest one counts.
type Weights = BTreeMap<Slot, usize>;

fn share(slot: u8, weight: u16) -> Share {
    Share {
        slot: Slot(slot),
        weight,
    }
}

fn weights(shares: &[Share]) -> Weights {
    let mut weights = Weights::new();
    for share in shares.iter().filter(|share| share.weight > 0) {
        let weight = weights.entry(share.slot).or_default();
        *weight = usize::from(share.weight).max(*weight);
    }
    weights
}

fn owned(owners: &Owners) -> [usize; SLOTS] {
    let mut owned = [0; SLOTS];
    for slot in owners.iter().flatten() {
        owned[usize::from(slot.0)] += 1;
    }
    owned
}

fn moved(owners: &Owners, moves: &[Move]) -> Owners {
    let mut owners = *owners;
    for step in moves {
        owners[step.bucket] = Some(step.to);
    }
    owners
}

/// The fewest buckets that must move, over all ways to round the quotas up or down.
fn fewest(owners: &Owners, weights: &Weights) -> Option<usize> {
    let total: usize = weights.values().sum();
    let missing = BUCKETS
        - weights
            .values()
            .map(|weight| weight * BUCKETS / total)
            .sum::<usize>();
    let owned = owned(owners);
    // Indexed by the number of these slots that are rounded up: the fewest buckets that must move
    // for the slots so far.
    let mut fewest = vec![None; missing + 1];
    fewest[0] = Some(0);
    for (slot, weight) in weights {
        let (down, owned) = (weight * BUCKETS / total, owned[usize::from(slot.0)]);
        let may_rise = weight * BUCKETS % total > 0;
        for ups in (0..=missing).rev() {
            let kept = fewest[ups].map(|least| least + down.saturating_sub(owned));
            let before = ups
                .checked_sub(1)
                .filter(|_| may_rise)
                .and_then(|ups| fewest[ups]);
            let raised = before.map(|least| least + (down + 1).saturating_sub(owned));
            fewest[ups] = kept.into_iter().chain(raised).min();
        }
    }
    fewest[missing]
}

/// Plans, checks the properties that every plan must have, and returns the table after the moves.
fn settled(owners: &Owners, shares: &[Share]) -> Result<Owners, TestCaseError> {
    let moves = plan(owners, shares);
    let new = moved(owners, &moves);
    let weights = weights(shares);
    if weights.is_empty() {
        prop_assert!(moves.is_empty());
        return Ok(new);
    }
    prop_assert!(moves.windows(2).all(|pair| pair[0].bucket < pair[1].bucket));
    prop_assert!(
        moves
            .iter()
            .all(|step| owners[step.bucket] != Some(step.to))
    );
    prop_assert_eq!(Some(moves.len()), fewest(owners, &weights));
    let (total, owned) = (weights.values().sum::<usize>(), owned(&new));
    for (slot, weight) in &weights {
        let (quota, owned) = (weight * BUCKETS, owned[usize::from(slot.0)]);
        prop_assert!(owned == quota / total || owned == quota.div_ceil(total));
    }
    let has_share = |owner: &Option<Slot>| owner.is_some_and(|slot| weights.contains_key(&slot));
    prop_assert!(new.iter().all(has_share));
    prop_assert_eq!(plan(&new, shares), []);
    let reversed: Vec<Share> = shares.iter().rev().copied().collect();
    prop_assert_eq!(plan(owners, &reversed), moves);
    Ok(new)
}

fn owners() -> impl Strategy<Value = Owners> {
    let owner = prop::option::weighted(0.9, any::<u8>().prop_map(Slot));
    // Slot numbers that are too large are reduced, so that some tables have few owners.
    (vec(owner, BUCKETS), 1..=255_u8).prop_map(|(drawn, slots)| {
        std::array::from_fn(|bucket| drawn[bucket].map(|slot| Slot(slot.0 % slots)))
    })
}

fn shares() -> impl Strategy<Value = Vec<Share>> {
    let weight = prop_oneof![3 => Just(1), 1 => 0..5_u16, 1 => any::<u16>()];
    let slots = prop_oneof![0..8_u8, any::<u8>()];
    vec(
        (slots, weight).prop_map(|(slot, weight)| share(slot, weight)),
        0..300,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_plan_has_the_fewest_moves(owners in owners(), shares in shares()) {
        settled(&owners, &shares)?;
    }

    #[test]
    fn a_first_fill_is_a_plan_too(shares in shares()) {
        settled(&[None; BUCKETS], &shares)?;
    }

    #[test]
    fn who_joins_and_leaves_moves_nothing_between_others(
        owners in owners(),
        members in 1..255_u8,
        newcomer in any::<u8>(),
    ) {
        let others: Vec<Share> =
            (0..=members).filter(|&slot| slot != newcomer).map(|slot| share(slot, 1)).collect();
        let mut with = others.clone();
        with.push(share(newcomer, 1));
        let before = settled(&owners, &others)?;
        let between = settled(&before, &with)?;
        let after = settled(&between, &others)?;
        for bucket in 0..BUCKETS {
            let stays = between[bucket] != Some(Slot(newcomer));
            prop_assert!(!stays || before[bucket] == between[bucket]);
            prop_assert!(!stays || between[bucket] == after[bucket]);
        }
    }
}

/// A change of a group: a slot gets a weight. With a weight of 0 the slot leaves the group.
fn event() -> impl Strategy<Value = (u8, u16)> {
    let slot = prop_oneof![4 => 0..10_u8, 1 => any::<u8>()];
    let weight = prop_oneof![2 => Just(0), 4 => Just(1), 1 => 1..10_u16, 1 => any::<u16>()];
    (slot, weight)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn a_groups_whole_life_keeps_all_of_it(events in vec(event(), 200)) {
        let mut owners = [None; BUCKETS];
        let mut members = BTreeMap::new();
        for (slot, weight) in events {
            members.insert(slot, weight);
            let shares: Vec<Share> =
                members.iter().map(|(&slot, &weight)| share(slot, weight)).collect();
            owners = settled(&owners, &shares)?;
        }
    }

    #[test]
    fn joins_and_leaves_of_equals_move_the_joiners_and_the_leavers_only(
        slots in vec(prop_oneof![0..10_u8, any::<u8>()], 200),
    ) {
        let mut owners = [None; BUCKETS];
        let mut members = BTreeMap::new();
        for slot in slots {
            if members.len() == 1 && members.contains_key(&slot) {
                continue;
            }
            if members.remove(&slot).is_none() {
                members.insert(slot, share(slot, 1));
            }
            let shares: Vec<Share> = members.values().copied().collect();
            let new = settled(&owners, &shares)?;
            let part = if members.contains_key(&slot) { shares.len() } else { shares.len() + 1 };
            let mut count = 0;
            for (old, new) in owners.iter().zip(&new).filter(|(old, new)| old != new) {
                count += 1;
                prop_assert!(*old == Some(Slot(slot)) || *new == Some(Slot(slot)));
            }
            prop_assert!(count == BUCKETS / part || count == BUCKETS.div_ceil(part));
            owners = new;
        }
    }
}
