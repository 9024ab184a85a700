//! Checks the number of moves in the most frequent cases, and that the moved buckets are spread
//! over the table.

use super::*;
use std::collections::BTreeSet;

fn equal(slots: impl IntoIterator<Item = u8>) -> Vec<Share> {
    slots
        .into_iter()
        .map(|slot| Share {
            slot: Slot(slot),
            weight: 1,
        })
        .collect()
}

/// Plans the moves for `shares`, applies them to `owners`, and returns them.
fn settle(owners: &mut Owners, shares: &[Share]) -> Vec<Move> {
    let moves = plan(owners, shares);
    for step in &moves {
        owners[step.bucket] = Some(step.to);
    }
    moves
}

fn settled(shares: &[Share]) -> Owners {
    let mut owners = [None; BUCKETS];
    settle(&mut owners, shares);
    owners
}

fn owned(owners: &Owners, slot: u8) -> usize {
    owners
        .iter()
        .filter(|&&owner| owner == Some(Slot(slot)))
        .count()
}

fn buckets_of(owners: &Owners, slot: u8) -> Vec<usize> {
    (0..BUCKETS)
        .filter(|&bucket| owners[bucket] == Some(Slot(slot)))
        .collect()
}

#[test]
fn the_first_member_owns_all_at_once() {
    let moves = plan(&[None; BUCKETS], &equal([7]));
    assert_eq!(moves.len(), BUCKETS);
    assert!(moves.iter().all(|step| step.to == Slot(7)));
}

#[test]
fn a_fifth_member_takes_a_fifth() {
    let mut owners = settled(&equal(0..4));
    let before = owners;
    let moves = settle(&mut owners, &equal(0..5));
    assert_eq!(moves.len(), 819);
    assert!(moves.iter().all(|step| step.to == Slot(4)));
    for slot in 0..4 {
        assert!([204, 205].contains(&(owned(&before, slot) - owned(&owners, slot))));
    }
}

#[test]
fn each_join_takes_its_part_rounded_up_or_down() {
    let mut owners = settled(&equal([0]));
    for last in 1..=u8::MAX {
        let members = usize::from(last) + 1;
        let moves = settle(&mut owners, &equal(0..=last));
        let taken = [BUCKETS / members, BUCKETS.div_ceil(members)];
        assert!(
            taken.contains(&moves.len()),
            "{members} members: {}",
            moves.len()
        );
        assert!(moves.iter().all(|step| step.to == Slot(last)));
    }
}

#[test]
fn a_leave_moves_the_leavers_only() {
    let mut owners = settled(&equal(0..5));
    let left = buckets_of(&owners, 2);
    let moves = settle(&mut owners, &equal([0, 1, 3, 4]));
    let moved: Vec<usize> = moves.iter().map(|step| step.bucket).collect();
    assert_eq!(moved, left);
    assert!(
        [0, 1, 3, 4]
            .iter()
            .all(|&slot| owned(&owners, slot) == 1024)
    );
}

#[test]
fn who_comes_back_takes_nearly_the_same() {
    let mut owners = settled(&equal(0..4));
    settle(&mut owners, &equal(0..5));
    let first = buckets_of(&owners, 4);
    for _ in 0..20 {
        settle(&mut owners, &equal(0..4));
        settle(&mut owners, &equal(0..5));
        let again = buckets_of(&owners, 4);
        let same = again.iter().filter(|bucket| first.contains(bucket)).count();
        assert!(same > 780, "{same} of {}", first.len());
    }
}

#[test]
fn what_moves_is_spread_over_the_table() {
    let mut owners = settled(&equal(0..4));
    let moves = settle(&mut owners, &equal(0..5));
    for part in 0..16 {
        let here = moves
            .iter()
            .filter(|step| step.bucket / 256 == part)
            .count();
        // 51 of 256 on average, with a standard deviation of 6.
        assert!((27..=75).contains(&here), "part {part}: {here}");
    }
}

#[test]
fn without_owners_neighbours_go_to_different_slots() {
    for members in [2, 3, 5, 16, 255] {
        let owners = settled(&equal(0..members));
        assert!(owners.windows(2).all(|pair| pair[0] != pair[1]));
        for window in owners.chunks(usize::from(members)) {
            let different: BTreeSet<_> = window.iter().collect();
            assert!(
                window.len() - different.len() <= window.len() / 8,
                "{members} members"
            );
        }
    }
}

#[test]
fn weights_are_kept() {
    let shares = |last| {
        [(0, 1), (1, 2), (9, last)].map(|(slot, weight)| Share {
            slot: Slot(slot),
            weight,
        })
    };
    let mut owners = settled(&shares(5));
    assert_eq!(
        [0, 1, 9].map(|slot| owned(&owners, slot)),
        [512, 1024, 2560]
    );
    assert_eq!(settle(&mut owners, &shares(1)).len(), 1536);
    assert_eq!(
        [0, 1, 9].map(|slot| owned(&owners, slot)),
        [1024, 2048, 1024]
    );
}

#[test]
fn a_share_below_one_bucket_may_get_none() {
    let mut shares = equal([0]);
    shares.push(Share {
        slot: Slot(1),
        weight: u16::MAX,
    });
    assert_eq!(owned(&settled(&shares), 0), 0);
}

#[test]
fn a_weight_of_nothing_is_no_share() {
    let owners = settled(&equal(0..2));
    let nothing = Share {
        slot: Slot(0),
        weight: 0,
    };
    assert_eq!(plan(&owners, &[]), []);
    assert_eq!(plan(&owners, &[nothing]), []);
    let moves = plan(
        &owners,
        &[
            nothing,
            Share {
                slot: Slot(1),
                weight: 3,
            },
        ],
    );
    assert_eq!(moves.len(), BUCKETS / 2);
}

#[test]
fn of_several_shares_of_a_slot_the_greatest_counts() {
    let mut shares = equal([0, 1, 0]);
    shares[2].weight = 3;
    let owners = settled(&shares);
    assert_eq!([owned(&owners, 0), owned(&owners, 1)], [3072, 1024]);
}
