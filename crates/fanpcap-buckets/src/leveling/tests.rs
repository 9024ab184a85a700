//! Levels made-up loads. Checks after how many rounds the loads are level, how even they are then,
//! and which buckets do not move.

use super::*;
use crate::layout::BUCKETS;
use proptest::prelude::*;

/// The number of packets of each bucket. The sizes of flows follow Zipf's law with the exponent
/// `tenths` / 10.
fn zipf(flows: u32, tenths: u32, buckets: usize) -> Vec<u64> {
    let mut packets = vec![0; buckets];
    for flow in 1..=flows {
        let size = 1e7 / f64::from(flow).powf(f64::from(tenths) / 10.0);
        // Murmur's finalizer serves as the hash of a flow.
        let mut hash = u64::from(flow).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 33;
        hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small and positive"
        )]
        let size = size as u64;
        packets[usize::try_from(hash >> 40).unwrap() % buckets] += size;
    }
    packets
}

/// Gives buckets to the owners in turn, as in a NIC's initial indirection table.
fn by_turns(buckets: usize, owners: usize) -> Vec<usize> {
    (0..buckets).map(|bucket| bucket % owners).collect()
}

/// The number of rounds until no bucket moves, and the imbalance after these rounds, in parts of
/// 1000.
fn settled(packets: &[u64], owners: &mut [usize], weights: &[u16]) -> (usize, u64) {
    let mut leveling = Leveling::default();
    let mut still = 0;
    for count in 0..100 {
        let load = load(packets, owners, weights);
        let round = leveling.round(&load, Moves::All);
        if round.shifts.is_empty() {
            still += 1;
            if still == 2 {
                return (count - 1, imbalance(&load));
            }
        } else {
            still = 0;
        }
        for Shift { bucket, to } in round.shifts {
            owners[bucket] = to;
        }
    }
    panic!("buckets still move after the last round");
}

fn load<'a>(packets: &'a [u64], owners: &'a [usize], weights: &'a [u16]) -> Load<'a> {
    Load {
        packets,
        owners,
        weights,
    }
}

#[test]
fn skewed_flows_are_level_after_few_rounds() {
    for (buckets, owners) in [
        (128, 2),
        (128, 4),
        (BUCKETS, 4),
        (BUCKETS, 8),
        (BUCKETS, 16),
    ] {
        let packets = zipf(10_000, 9, buckets);
        let mut owned = by_turns(buckets, owners);
        let weights = vec![1; owners];
        let before = imbalance(&load(&packets, &owned, &weights));
        let (rounds, after) = settled(&packets, &mut owned, &weights);
        println!("{owners} owners of {buckets}: {before} -> {after} in {rounds} rounds");
        assert!(rounds <= 8, "{rounds}");
        assert!(
            after <= 50,
            "imbalance {after} after levelling, {before} before"
        );
    }
}

#[test]
fn owners_get_by_their_weights() {
    let packets = vec![100; 128];
    let mut owners = by_turns(128, 2);
    let (_, after) = settled(&packets, &mut owners, &[3, 1]);
    assert!(after <= 20, "{after}");
    assert_eq!(owners.iter().filter(|&&owner| owner == 1).count(), 32);
}

#[test]
fn an_owner_without_weight_gives_all_and_gets_nothing() {
    let packets = vec![100; 128];
    let mut owners = by_turns(128, 2);
    settled(&packets, &mut owners, &[1, 0]);
    assert!(owners.iter().all(|&owner| owner == 0));
}

#[test]
fn two_percent_are_level() {
    let packets = [102, 98];
    let round = Leveling::default().round(&load(&packets, &[0, 1], &[1, 1]), Moves::All);
    assert_eq!(round, Round::default());
}

#[test]
fn an_elephant_is_named_and_stays_and_the_others_leave_it() {
    let mut packets = vec![10; 128];
    packets[8] = 10_000;
    let mut owners = by_turns(128, 4);
    let mut leveling = Leveling::default();
    for _ in 0..20 {
        let round = leveling.round(&load(&packets, &owners, &[1; 4]), Moves::All);
        assert_eq!(round.elephants, [8]);
        for Shift { bucket, to } in round.shifts {
            assert_ne!(bucket, 8);
            owners[bucket] = to;
        }
    }
    let with_it = (0..128).filter(|&bucket| owners[bucket] == 0).count();
    assert_eq!(with_it, 1, "buckets of the elephant's owner");
}

#[test]
fn no_more_than_a_tenth_moves_in_a_round() {
    let packets = vec![10; 1000];
    let owners = vec![0; 1000];
    let round = Leveling::default().round(&load(&packets, &owners, &[1, 1]), Moves::All);
    assert_eq!(round.shifts.len(), 100);
}

#[test]
fn who_has_just_received_gives_nothing() {
    let mut leveling = Leveling::default();
    let first = leveling.round(&load(&[50, 50, 0], &[0, 0, 1], &[1, 1]), Moves::All);
    let moved = first.shifts[0];
    assert_eq!(moved.to, 1);
    // The new counts differ: the owner that has received a bucket now exceeds its share.
    let again = load(&[10, 10, 80], &[1, 0, 1], &[1, 1]);
    assert!(leveling.round(&again, Moves::All).shifts.is_empty());
    assert!(!leveling.round(&again, Moves::All).shifts.is_empty());
}

#[test]
fn idle_buckets_alone_move_where_live_flows_stay() {
    let packets: Vec<u64> = (0..1000).map(|bucket| u64::from(bucket % 4 == 0)).collect();
    let idle: Vec<bool> = packets.iter().map(|&packets| packets == 0).collect();
    let mut owners = vec![0; 1000];
    let mut leveling = Leveling::default();
    for _ in 0..3 {
        let round = leveling.round(&load(&packets, &owners, &[1, 1]), Moves::Idle(&idle));
        assert!(!round.shifts.is_empty());
        for Shift { bucket, to } in round.shifts {
            assert!(idle[bucket] && to == 1);
            owners[bucket] = to;
        }
    }
}

#[test]
fn a_bucket_that_came_in_a_round_stays_until_the_next() {
    let packets = [
        720_519, 720_521, 108_489, 293_211, 0, 383_487, 20_377, 314_432, 589_896, 878, 201_278,
    ];
    let weights = [3, 0, 2, 3, 2, 4, 4];
    let seed = 9_736_287_507_793_175_118_u64 | 1;
    let owners: Vec<usize> = (0..11)
        .map(|bucket: u64| usize::try_from(bucket.wrapping_mul(seed) % 7).unwrap())
        .collect();
    let load = load(&packets, &owners, &weights);
    let round = Leveling::default().round(&load, Moves::All);
    let mut moved: Vec<usize> = round.shifts.iter().map(|shift| shift.bucket).collect();
    moved.sort_unstable();
    assert!(moved.windows(2).all(|two| two[0] != two[1]), "{round:?}");
}

#[test]
fn nothing_comes_of_no_packets() {
    let load = load(&[0; 16], &[0; 16], &[1, 1]);
    let round = Leveling::default().round(&load, Moves::All);
    assert_eq!((round, imbalance(&load)), (Round::default(), 0));
}

proptest! {
    /// For any load, a round never makes the busiest owner busier and moves each bucket at most
    /// once. After some rounds no bucket moves any more.
    #[test]
    fn rounds_never_make_it_worse(
        packets in prop::collection::vec(0u64..1_000_000, 1..300),
        weights in prop::collection::vec(0u16..5, 1..8),
        seed: u64,
    ) {
        let count = weights.len() as u64;
        let owners: Vec<usize> = (0..packets.len() as u64)
            .map(|bucket| usize::try_from(bucket.wrapping_mul(seed | 1) % count).unwrap())
            .collect();
        let before = load(&packets, &owners, &weights);
        let round = Leveling::default().round(&before, Moves::All);
        let mut after = owners.clone();
        for &Shift { bucket, to } in &round.shifts {
            prop_assert!(weights[to] > 0);
            prop_assert_eq!(after[bucket], owners[bucket], "moved twice");
            after[bucket] = to;
        }
        prop_assert!(imbalance(&load(&packets, &after, &weights)) <= imbalance(&before));
        let mut owned = owners;
        settled(&packets, &mut owned, &weights);
    }
}
