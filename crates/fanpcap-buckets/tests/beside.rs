//! Properties of plans for a group beside another one: what is bound, what is shared out, and what
//! moves when processes come and go that have members in one or in both groups.

use fanpcap_buckets::layout::{BUCKETS, SLOTS};
use fanpcap_buckets::{Move, Owners, Share, Slot, plan, plan_beside};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn share(slot: u8, weight: u16) -> Share {
    Share {
        slot: Slot(slot),
        weight,
    }
}

fn moved(owners: &Owners, moves: &[Move]) -> Owners {
    let mut owners = *owners;
    for step in moves {
        owners[step.bucket] = Some(step.to);
    }
    owners
}

fn count(owners: &Owners) -> [usize; SLOTS] {
    let mut owned = [0; SLOTS];
    for slot in owners.iter().flatten() {
        owned[usize::from(slot.0)] += 1;
    }
    owned
}

/// Owners of whom some have no share, and buckets without an owner.
fn owners() -> impl Strategy<Value = Owners> {
    let owner = prop::option::weighted(0.8, 0..12_u8);
    vec(owner, BUCKETS).prop_map(|drawn| std::array::from_fn(|bucket| drawn[bucket].map(Slot)))
}

fn shares() -> impl Strategy<Value = Vec<Share>> {
    let weight = prop_oneof![3 => Just(1), 1 => 0..5_u16, 1 => any::<u16>()];
    vec((0..10_u8, weight), 1..12).prop_map(|drawn| {
        let drawn: BTreeMap<u8, u16> = drawn.into_iter().collect();
        drawn
            .into_iter()
            .map(|(slot, weight)| share(slot, weight))
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn bound_buckets_go_to_their_slots_and_free_ones_level(
        owners in owners(),
        shares in shares(),
        asked in owners(),
        parts in 0..4_u8,
    ) {
        // The other group binds some of the buckets, or none.
        let asked = asked.map(|it| it.filter(|slot| slot.0 % 4 < parts));
        let weight = |slot: Slot| {
            let share = shares.iter().find(|it| it.slot == slot);
            share.map_or(0, |it| it.weight)
        };
        let moves = plan_beside(&owners, &shares, &asked);
        if shares.iter().all(|it| it.weight == 0) {
            prop_assert!(moves.is_empty());
            return Ok(());
        }
        let new = moved(&owners, &moves);
        let bound = asked.map(|it| it.filter(|slot| weight(*slot) > 0));
        let is_free = |bucket: usize| bound[bucket].is_none();
        let free: Owners = std::array::from_fn(|bucket| new[bucket].filter(|_| is_free(bucket)));
        prop_assert!((0..BUCKETS).all(|it| is_free(it) || new[it] == bound[it]));
        prop_assert!(new.iter().all(|it| it.is_some_and(|slot| weight(slot) > 0)));
        prop_assert!(moves.windows(2).all(|pair| pair[0].bucket < pair[1].bucket));
        prop_assert_eq!(plan_beside(&new, &shares, &asked), []);
        // No slot with a free bucket has more than another one by its weight, but for rounding.
        let (all, spare) = (count(&new), count(&free));
        for one in shares.iter().filter(|it| spare[usize::from(it.slot.0)] > 0) {
            for other in shares.iter().filter(|it| it.weight > 0) {
                let [many, few] = [one, other].map(|it| all[usize::from(it.slot.0)] as u64);
                let [of_one, of_other] = [one, other].map(|it| u64::from(it.weight));
                prop_assert!((many - 1) * of_other <= (few + 1) * of_one, "{one:?} {other:?}");
            }
        }
        // A free bucket moves only to a slot that lacks it.
        let before: Owners = std::array::from_fn(|bucket| owners[bucket].filter(|slot| {
            bound[bucket].is_none() && weight(*slot) > 0
        }));
        let (before, after) = (count(&before), spare);
        let gained: usize = (0..SLOTS).map(|slot| after[slot].saturating_sub(before[slot])).sum();
        let is_free = |step: &&Move| bound[step.bucket].is_none();
        prop_assert_eq!(moves.iter().filter(is_free).count(), gained);
    }

    #[test]
    fn with_nothing_bound_it_is_a_group_by_itself(owners in owners(), shares in shares()) {
        let free = [None; BUCKETS];
        prop_assert_eq!(plan_beside(&owners, &shares, &free), plan(&owners, &shares));
    }
}

/// Two groups of the same processes. The slot of a process is its number, in both groups.
struct Pair {
    first: (Owners, BTreeMap<u8, Share>),
    second: (Owners, BTreeMap<u8, Share>),
}

impl Pair {
    fn new() -> Self {
        let empty = || ([None; BUCKETS], BTreeMap::new());
        Self {
            first: empty(),
            second: empty(),
        }
    }

    /// Plans both groups anew.
    fn settle(&mut self) {
        let (owners, members) = &mut self.first;
        let shares: Vec<Share> = members.values().copied().collect();
        owners
            .iter_mut()
            .for_each(|it| *it = it.filter(|slot| members.contains_key(&slot.0)));
        *owners = moved(owners, &plan(owners, &shares));
        let bound = *owners;
        let (owners, members) = &mut self.second;
        let shares: Vec<Share> = members.values().copied().collect();
        owners
            .iter_mut()
            .for_each(|it| *it = it.filter(|slot| members.contains_key(&slot.0)));
        *owners = moved(owners, &plan_beside(owners, &shares, &bound));
    }

    fn owners(&self) -> [Owners; 2] {
        [self.first.0, self.second.0]
    }

    /// A process opens or closes its handles on these devices, and has this weight.
    fn turn(&mut self, process: u8, on: [bool; 2], weight: u16) {
        let members = [&mut self.first.1, &mut self.second.1];
        for (members, is_on) in members.into_iter().zip(on) {
            match is_on {
                true => _ = members.insert(process, share(process, weight)),
                false => _ = members.remove(&process),
            }
        }
    }

    /// A process that has a member in both groups gets both directions.
    fn check(&self) -> Result<(), TestCaseError> {
        for (one, other) in self.first.0.iter().zip(&self.second.0) {
            let is_in_both = |slot: &Slot| {
                self.first.1.contains_key(&slot.0) && self.second.1.contains_key(&slot.0)
            };
            if one.is_some_and(|slot| is_in_both(&slot)) {
                prop_assert_eq!(one, other, "the directions part");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn who_has_both_devices_gets_both_directions(
        turns in vec((0..6_u8, any::<[bool; 2]>(), 1..4_u16), 40),
    ) {
        let mut pair = Pair::new();
        for (process, on, weight) in turns {
            pair.turn(process, on, weight);
            pair.settle();
            pair.check()?;
        }
    }

    #[test]
    fn if_all_have_both_devices_only_flows_of_who_comes_or_goes_move(turns in vec(0..8_u8, 60)) {
        let mut pair = Pair::new();
        for process in turns {
            let is_in = pair.first.1.contains_key(&process);
            if is_in && pair.first.1.len() == 1 {
                continue;
            }
            let before = pair.owners();
            // The first device comes first, as it may for a process that opens one after the other.
            for on in [[!is_in, is_in], [!is_in; 2]] {
                pair.turn(process, on, 1);
                pair.settle();
                pair.check()?;
            }
            let after = pair.owners();
            for (before, after) in before.iter().zip(&after) {
                let moves = before.iter().zip(after).filter(|(before, after)| before != after);
                let its = Some(Slot(process));
                let is_its = |(before, after): (&Option<Slot>, &Option<Slot>)| {
                    before.is_none() || *before == its || *after == its
                };
                prop_assert!(moves.into_iter().all(is_its));
            }
            prop_assert!(after[0] == after[1]);
        }
    }
}
