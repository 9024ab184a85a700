//! Faults one by one, with what each may cost.

use crate::fate::{Blow, Scene};
use crate::proof;
use crate::store::Time;
use crate::world::World;

const SECOND: Time = 1_000_000;

/// Runs what is given, under several seeds, and looks at each run.
fn each(nodes: usize, chairs: usize, blows: &[(Time, Blow)], look: impl Fn(&World, Time)) {
    for seed in 1_000_000..1_000_020 {
        let scene = Scene::scripted(nodes, chairs, blows);
        let world = World::run(seed, &scene, false);
        let verdict = proof::judge(&world.judged(), &scene);
        let verdict = verdict.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        look(&world, verdict.longest);
    }
}

/// How many topologies were written from `from` on.
fn written(world: &World, from: Time) -> usize {
    let history = world.store.history.iter();
    history.filter(|(at, ..)| *at >= from).count()
}

#[test]
fn a_dead_node_is_replaced_within_its_lease_and_a_second() {
    let lasts = 15 * SECOND;
    let blow = Blow::PowerCut { node: 1, lasts };
    each(4, 2, &[(10 * SECOND, blow)], |_, longest| {
        // The last sign of life is up to 0.7 s old. A message may be lost, a load fail once.
        assert!((4 * SECOND..8 * SECOND).contains(&longest), "{longest}");
    });
}

#[test]
fn without_a_quorum_and_after_a_mass_expiry_nothing_changes() {
    let lasts = 25 * SECOND;
    let blow = Blow::NoQuorum {
        lasts,
        revoke: true,
    };
    each(5, 3, &[(10 * SECOND, blow)], |world, longest| {
        assert_eq!((written(world, 10 * SECOND), longest), (0, 0));
    });
}

#[test]
fn without_a_coordinator_the_capture_goes_on() {
    let lasts = 25 * SECOND;
    let blows = [
        (10 * SECOND, Blow::KilledChair { chair: 0, lasts }),
        (10 * SECOND, Blow::KilledChair { chair: 1, lasts }),
        (
            12 * SECOND,
            Blow::KilledAgent {
                node: 0,
                lasts: SECOND,
            },
        ),
    ];
    each(3, 2, &blows, |world, longest| {
        assert_eq!((written(world, 10 * SECOND), longest), (0, 0));
    });
}

#[test]
fn a_successor_ends_the_union_that_its_predecessor_began() {
    let lasts = 20 * SECOND;
    let union = 10 * SECOND + SECOND / 10;
    let blows = [
        (10 * SECOND, Blow::Weigh { node: 0, weight: 3 }),
        (union, Blow::KilledChair { chair: 0, lasts }),
        (
            union,
            Blow::KilledChair {
                chair: 1,
                lasts: 2 * SECOND,
            },
        ),
    ];
    each(4, 2, &blows, |world, longest| {
        let last = world.store.history.last().expect("a topology");
        assert!(last.0 < union + 10 * SECOND, "{}", last.0);
        assert_eq!((written(world, 10 * SECOND), longest), (2, 0));
    });
}

#[test]
fn a_node_that_is_cut_off_loses_nothing_but_its_buckets() {
    let lasts = 20 * SECOND;
    let blow = Blow::CutOff { node: 2, lasts };
    each(4, 2, &[(10 * SECOND, blow)], |world, longest| {
        // Away, and back: a union and its end each.
        assert_eq!((written(world, 10 * SECOND), longest), (4, 0));
    });
}

#[test]
fn a_machine_that_stands_still_loses_what_came_meanwhile() {
    let lasts = 20 * SECOND;
    let blow = Blow::Standstill { node: 2, lasts };
    each(4, 2, &[(10 * SECOND, blow)], |_, longest| {
        assert!((4 * SECOND..8 * SECOND).contains(&longest), "{longest}");
    });
}
