//! Members of a balanced group level their loads.

use super::world::World;
use super::{filled, owned};
use crate::slots::rounds::{PACKETS, PAUSE_NS, ROUND_NS};
use crate::table::{Elephant, State};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::BUCKETS;
use fanpcap_config::steering::Balance;

/// Packets of a flow in a round.
const FLOW: u32 = 100;

fn group(balance: Balance) -> World {
    filled(World::balanced(7, balance), 4)
}

fn buckets_of(world: &World, slot: u8) -> Vec<usize> {
    let (owners, member) = (world.owners(), world.in_slot(slot));
    (0..BUCKETS).filter(|&at| owners[at] == member).collect()
}

/// Flows of equal size in every eighth bucket, and more flows at one member, so that this member
/// has 1.5 times its share.
fn skewed(world: &World) -> Vec<(usize, u32)> {
    let even = (0..BUCKETS).step_by(8).map(|bucket| (bucket, FLOW));
    let mut flows: Vec<(usize, u32)> = even.collect();
    let more = buckets_of(world, 1).into_iter().step_by(11);
    flows.extend(more.map(|bucket| (bucket, FLOW)));
    flows
}

/// Runs rounds with the same flows. Returns how far the busiest member was above the mean in each
/// round.
fn rounds(world: &mut World, flows: &[(usize, u32)], count: usize) -> Vec<u64> {
    (0..count).map(|_| world.round(flows)).collect()
}

#[test]
fn the_busiest_member_is_level_with_the_others_within_few_rounds() {
    let mut world = group(Balance::All);
    let flows = skewed(&world);
    let above = rounds(&mut world, &flows, 20);
    println!("{above:?}");
    assert!(above[0] > 400 && above[10..].iter().all(|&above| above <= 50));
    let owners = world.owners();
    rounds(&mut world, &flows, 3);
    assert_eq!(world.owners(), owners, "a bucket moved in a leveled group");
    let leveled = world.table().leveled().unwrap();
    assert_eq!((leveled.rounds, leveled.elephants), (23, vec![]));
}

/// Live flows stay. New flows arrive in buckets that had none, and level the members.
#[test]
fn new_flows_level_the_members_where_live_ones_stay() {
    let mut world = group(Balance::Idle);
    let mut flows = skewed(&world);
    let live: Vec<usize> = flows.iter().map(|(bucket, _)| *bucket).collect();
    let owners = world.owners();
    let mut above = Vec::new();
    for round in 0..20 {
        above.push(world.round(&flows));
        let taken: Vec<usize> = flows.iter().map(|(bucket, _)| *bucket).collect();
        let news = (0..BUCKETS).skip(round).step_by(20);
        let news = news.filter(|bucket| !taken.contains(bucket));
        flows.extend(news.map(|bucket| (bucket, FLOW)));
    }
    println!("{above:?}");
    assert!(above[0] > 400 && above[19] <= 50);
    let now = world.owners();
    assert!(live.iter().all(|&bucket| owners[bucket] == now[bucket]));
}

#[test]
fn a_flow_of_more_than_a_share_is_named_and_stays() {
    let mut world = group(Balance::All);
    let mut flows = skewed(&world);
    let all: u32 = flows.iter().map(|(_, packets)| packets).sum();
    let elephant = buckets_of(&world, 2)[0];
    flows.push((elephant, all));
    let owner = world.owners()[elephant];
    rounds(&mut world, &flows, 20);
    assert_eq!(world.owners()[elephant], owner);
    let leveled = world.table().leveled().unwrap();
    let named = Elephant {
        bucket: u16::try_from(elephant).unwrap(),
        slot: Slot(2),
        part: 500,
    };
    assert_eq!(leveled.elephants, [named]);
    // The elephant's owner has no other flow, and no other member has more than its share.
    let rest: Vec<(usize, u32)> = flows[..flows.len() - 1].to_vec();
    let owners = world.owners();
    let of = |slot| {
        let member = world.in_slot(slot);
        let its = rest.iter().filter(|(bucket, _)| owners[*bucket] == member);
        its.map(|(_, packets)| packets).sum::<u32>()
    };
    let [one, two, with_it, three] = [0, 1, 2, 3].map(of);
    assert!(with_it == 0 && [one, two, three].iter().all(|it| *it <= all / 2));
}

#[test]
fn a_few_packets_move_nothing_until_there_are_enough() {
    let mut world = group(Balance::All);
    let owners = world.owners();
    let flows: Vec<(usize, u32)> = buckets_of(&world, 0)
        .into_iter()
        .take(90)
        .map(|bucket| (bucket, 100))
        .collect();
    const { assert!(9000 < 4 * PACKETS) };
    world.round(&flows);
    assert_eq!(world.owners(), owners);
    world.round(&flows);
    assert_ne!(world.owners(), owners, "two rounds have enough packets");
}

#[test]
fn a_bucket_is_idle_when_nothing_has_come_for_ten_seconds() {
    let mut world = group(Balance::Idle);
    let flows = skewed(&world);
    let bucket = |world: &World| buckets_of(world, 1)[0];
    // Each bucket has had a flow.
    let all: Vec<(usize, u32)> = (0..BUCKETS).map(|bucket| (bucket, 1)).collect();
    world.round(&[&flows[..], &all].concat());
    let owners = world.owners();
    let quiet = bucket(&world);
    for _ in 0..39 {
        world.round(&flows);
        assert_eq!(world.owners(), owners);
    }
    // A round takes 250 ms, but ages are counted in whole tenths of a second, so more rounds are
    // needed.
    for _ in 0..12 {
        world.round(&flows);
    }
    assert_ne!(world.owners(), owners);
    let live = flows.iter().map(|(bucket, _)| *bucket);
    let after = world.owners();
    assert!(
        live.into_iter().all(|it| owners[it] == after[it]),
        "{quiet}"
    );
}

/// It is unknown which buckets got packets before the group was balanced, so each bucket may have a
/// live flow.
#[test]
fn in_a_group_that_is_balanced_later_a_bucket_is_idle_after_ten_seconds() {
    let plain = filled(World::new(7), 4);
    plain.set_balance(None);
    let mut again = group(Balance::Idle);
    let all: Vec<(usize, u32)> = (0..BUCKETS).map(|bucket| (bucket, 3)).collect();
    again.round(&all);
    again.set_balance(None);
    again.idle(20_000_000_000);
    for mut world in [plain, again] {
        world.set_balance(Some(Balance::Idle));
        let (flows, owners) = (skewed(&world), world.owners());
        rounds(&mut world, &flows, 39);
        assert_eq!(world.owners(), owners);
        rounds(&mut world, &flows, 12);
        assert_ne!(world.owners(), owners);
    }
}

/// The counts wrap to 0 during the pause.
#[test]
fn after_a_pause_nothing_moves_by_what_was_counted_within_it() {
    let mut world = group(Balance::All);
    let (flows, owners) = (skewed(&world), world.owners());
    for &(bucket, packets) in &flows {
        world.count(bucket, packets);
    }
    world.idle(PAUSE_NS);
    world.round(&[]);
    assert_eq!(world.owners(), owners);
    world.round(&flows);
    assert_ne!(world.owners(), owners);
}

#[test]
fn a_newcomer_of_a_large_weight_gets_what_it_is_worth() {
    let mut world = filled(World::balanced(7, Balance::All), 1);
    let newcomer = world.open();
    world.join(newcomer).unwrap();
    world.weigh(newcomer, newcomer, 1000);
    world.begin_share(newcomer);
    let has = world.owners().iter().filter(|&&it| it == newcomer).count();
    // A member with a weight of 1 keeps 4 or 5 buckets.
    assert!(has.abs_diff(BUCKETS - 4) <= 1, "{has}");
}

/// A join or leave moves only one share, although members own different numbers of buckets.
#[test]
fn joins_and_leaves_move_no_bucket_between_others() {
    for balance in [Balance::Idle, Balance::All] {
        let mut world = group(balance);
        let flows = skewed(&world);
        rounds(&mut world, &flows, 10);
        let uneven = owned(&world);
        assert!(uneven[3] - uneven[0] > 50, "{uneven:?}");
        let before = world.owners();
        let newcomer = world.open();
        world.join(newcomer).unwrap();
        world.begin_share(newcomer);
        let after = world.owners();
        let moved = before
            .iter()
            .zip(&after)
            .filter(|(one, other)| one != other);
        let count = moved.clone().count();
        assert!(moved.into_iter().all(|(_, to)| *to == newcomer));
        assert!(count == BUCKETS / 5 || count == BUCKETS / 5 + 1, "{count}");
        for slot in [0, 1, 4] {
            let mut world = world.clone();
            let (gone, before) = (world.in_slot(slot), world.owners());
            world.depart(gone);
            world.recover();
            world.check();
            for (before, after) in before.into_iter().zip(world.owners()) {
                assert!(before == after || before == gone);
            }
        }
    }
}

#[test]
fn a_drained_member_gets_nothing_and_has_a_share_again_by_its_weight() {
    let mut world = group(Balance::All);
    let flows = skewed(&world);
    let drained = world.in_slot(3);
    world.weigh(0, drained, 0);
    rounds(&mut world, &flows, 5);
    assert!(world.owners().iter().all(|&owner| owner != drained));
    world.weigh(0, drained, 1);
    let has = world.owners().iter().filter(|&&it| it == drained).count();
    assert!(has.abs_diff(BUCKETS / 4) <= 1, "{has}");
}

#[test]
fn while_a_successor_is_awaited_nothing_moves() {
    let mut world = World::balanced(7, Balance::All);
    let named = world.open_named(1);
    world.join(named).unwrap();
    let mut world = filled(world, 3);
    let flows = skewed(&world);
    world.close(named);
    world.recover();
    let slot = world.table().slot_of(named).unwrap();
    assert_eq!(world.table().row(slot).state, State::Awaited);
    let before = world.owners();
    world.round(&flows);
    assert_eq!(world.owners(), before);
}

/// A member may die during its round. The next member continues.
#[test]
fn who_dies_in_a_round_is_replaced_by_the_next() {
    let four = group(Balance::All);
    let flows = skewed(&four);
    let mut steps = 0;
    loop {
        let mut world = four.clone();
        for &(bucket, packets) in &flows {
            world.count(bucket, packets);
        }
        world.idle(ROUND_NS);
        let first = world.in_slot(0);
        let is_whole = world
            .dying(first, steps, |world| world.level(first))
            .is_ok();
        world.recover();
        world.check();
        let leveled = rounds(&mut world, &flows, 20);
        assert!(leveled[19] <= 50, "{steps}: {leveled:?}");
        world.check();
        if is_whole {
            break;
        }
        steps += if steps < 10 { 1 } else { 7 };
    }
    assert!(steps > 10, "{steps}");
}

#[test]
fn members_of_balanced_groups_come_go_and_die_at_random() {
    for seed in 0..super::runs() / 4 {
        for balance in [Balance::Idle, Balance::All] {
            super::live_and_settle(World::balanced(seed, balance));
        }
    }
}
