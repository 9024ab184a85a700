//! Members of a group that one process serves join, leave, die and hang, in random schedules. Each
//! packet comes once to one member, or to a member that has taken over, and each flow in order.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod scene;
#[path = "scene/world.rs"]
mod world;

use fanpcap_group::view::State;
use fanpcap_steer::GroupOptions;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use world::World;

fn check(world: &World) {
    let counts = world.side.fan_out.counts(0).unwrap();
    assert_eq!(counts.offered, world.sent);
    assert_eq!((counts.no_member, counts.dropped), (0, 0));
    assert!(
        world.got().into_iter().eq(0..world.sent),
        "each packet once"
    );
    let places = world.group.look().places;
    let owners: usize = places.iter().map(|it| it.buckets).sum();
    assert_eq!(owners, 4096, "{places:?}");
    let states = places.iter().map(|it| it.state);
    let left: Vec<State> = states
        .filter(|it| !matches!(it, State::Live | State::Vacant | State::Free))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn each_packet_comes_once_whoever_comes_and_goes(
        steps in proptest::collection::vec((any::<u8>(), any::<usize>(), any::<u16>()), 1..60),
    ) {
        let mut world = World::new();
        world.join(None);
        steps.into_iter().for_each(|step| world.step(step));
        world.finish();
        check(&world);
    }

    #[test]
    fn each_flow_is_in_order_when_members_come_and_go_one_by_one(
        steps in proptest::collection::vec((any::<u8>(), any::<usize>(), any::<u16>()), 1..60),
    ) {
        let mut world = World::new();
        world.join(None);
        steps.into_iter().for_each(|step| world.ordered_step(step));
        world.finish();
        check(&world);
        check_order(&world);
    }
}

/// No application has got a packet of a flow after a later one.
fn check_order(world: &World) {
    let applications = world.applications.values().map(|it| &it.got);
    for got in applications.chain(&world.got_before) {
        let mut last = BTreeMap::new();
        for &number in got {
            let flow = world.frames[usize::try_from(number).unwrap()].flow.key();
            let before = last.insert(flow, number);
            assert!(before < Some(number), "{before:?} before {number}");
        }
    }
}

/// The members of the packets' flows, by the packets that each application has got.
fn owners(world: &World) -> HashMap<String, BTreeSet<u64>> {
    let mut owners: HashMap<String, BTreeSet<u64>> = HashMap::new();
    for (member, application) in &world.applications {
        for &number in &application.got {
            let flow = format!(
                "{:?}",
                world.frames[usize::try_from(number).unwrap()].flow.key()
            );
            owners.entry(flow).or_default().insert(*member);
        }
    }
    owners
}

#[test]
fn a_death_moves_only_the_flows_of_the_member_that_dies() {
    let mut world = World::new();
    for _ in 0..4 {
        world.join(None);
        world.attend_and_look();
    }
    world.send(3000);
    (1..5).for_each(|member| world.read(member, usize::MAX));
    let before = owners(&world);
    assert!(
        before.values().all(|members| members.len() == 1),
        "no flow is split"
    );
    for member in 1..5 {
        world.applications.get_mut(&member).unwrap().got.clear();
    }
    world.end(3);
    world.attend_and_look();
    world.send(3000);
    world.finish();
    let got: usize = world.applications.values().map(|it| it.got.len()).sum();
    assert_eq!(got, 3000);
    for (flow, members) in owners(&world) {
        assert_eq!(members.len(), 1, "no flow is split");
        let former = before.get(&flow);
        assert!(
            former == Some(&members) || former == Some(&BTreeSet::from([3])),
            "{flow}"
        );
    }
}

#[test]
fn a_newcomer_to_a_sticky_group_moves_no_flow_that_is_remembered() {
    let mut world = World::with(GroupOptions::sticky(65_536));
    for _ in 0..3 {
        world.join(None);
        world.attend_and_look();
    }
    let owners_after = |world: &mut World| {
        world.send(3000);
        world.finish();
        let owners = owners(world);
        for application in world.applications.values_mut() {
            application.got.clear();
        }
        owners
    };
    let before = owners_after(&mut world);
    world.join(None);
    world.attend_and_look();
    assert!(
        world
            .group
            .look()
            .places
            .iter()
            .all(|it| it.buckets == 1024)
    );
    assert_eq!(owners_after(&mut world), before);
    // The flows of a member that dies go to others.
    world.end(2);
    world.attend_and_look();
    let after = owners_after(&mut world);
    for (flow, members) in before {
        let moves = members.contains(&2);
        assert_eq!(after[&flow] != members, moves, "{flow}");
    }
}

#[test]
fn a_successor_gets_the_pool_and_the_buckets_of_its_predecessor() {
    let mut world = World::new();
    for name in [None, Some("a")] {
        world.join(name);
        world.attend_and_look();
    }
    let slots = |world: &World| {
        let places = world.group.look().places.into_iter();
        places.map(|it| (it.state, it.buckets)).collect::<Vec<_>>()
    };
    assert_eq!(slots(&world), [(State::Live, 2048), (State::Live, 2048)]);
    world.end(2);
    world.attend_and_look();
    world.send(1000);
    assert_eq!(slots(&world)[1], (State::Awaited, 2048));
    world.join(Some("a"));
    world.attend_and_look();
    world.read(3, usize::MAX);
    let got = world.applications[&3].got.len();
    assert!((200..800).contains(&got), "what came meanwhile: {got}");
    world.finish();
    assert!(world.got().into_iter().eq(0..1000));
    assert_eq!(world.group.look().takeovers, 1);
}

#[test]
fn a_member_is_drained_and_the_last_one_is_not() {
    let mut world = World::new();
    for _ in 0..2 {
        world.join(None);
        world.attend_and_look();
    }
    world.group.weigh(1, 0, &mut world.side).unwrap();
    world.send(500);
    world.finish();
    assert_eq!(
        (
            world.applications[&1].got.len(),
            world.applications[&2].got.len()
        ),
        (0, 500)
    );
    assert!(world.group.weigh(2, 0, &mut world.side).is_err());
    assert!(world.group.weigh(9, 1, &mut world.side).is_err());
    assert!(world.group.due_ns(2, world.side.now_ns, false).is_some());
}

#[test]
fn a_group_that_all_members_have_left_gets_no_more_packets_into_their_pools() {
    let mut world = World::new();
    world.join(None);
    world.attend_and_look();
    assert!(!world.group.is_memberless(&mut world.side).unwrap());
    world.side.connections.get_mut(&1).unwrap().is_open = false;
    assert!(world.group.is_memberless(&mut world.side).unwrap());
    world.send(10);
    assert_eq!(world.side.fan_out.counts(0).unwrap().no_member, 10);
}
