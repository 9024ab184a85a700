//! A member that joined lately leaves a dead member to older members for a while.

use super::owned;
use super::world::World;
use crate::slots::classes::LEFT_NS;
use crate::slots::rounds::ROUND_NS;
use crate::slots::succession::GRACE_NS;
use fanpcap_config::steering::Balance;

/// Three members, of which the second is gone. The third has noticed this, and leaves the second to
/// the first.
fn left() -> (World, u64, u64) {
    let mut world = World::new(7);
    let [_, gone, late] = [(); 3].map(|()| {
        world.idle(1_000_000);
        let member = world.open();
        world.join(member).unwrap();
        world.begin_share(member);
        member
    });
    world.send(60);
    world.close(gone);
    world.attend(late);
    assert_eq!(world.taker_of(gone), None);
    (world, gone, late)
}

#[test]
fn who_takes_a_ring_when_the_time_is_just_over_gives_the_buckets_away() {
    let (mut world, gone, late) = left();
    // The clock advances by one nanosecond at each reading, so the loop lets the time end between
    // any two readings.
    world.slow_down(1);
    let mut taken = 0;
    let ends = LEFT_NS - 50..LEFT_NS + 2;
    for ns in ends.clone() {
        let mut world = world.clone();
        world.idle(ns);
        world.attend(late);
        if world.taker_of(gone) == Some(late) {
            taken += 1;
            assert_eq!(owned(&world), [2048, 2048], "after {ns} ns");
            world.settle_all();
            world.check();
            world.check_ledger();
        }
    }
    assert!(taken > 0 && taken < ends.count());
}

/// Makes another change while the dead member's ring is not taken yet.
#[test]
fn nobody_gets_a_dead_members_buckets_before_somebody_has_its_ring() {
    type Change = fn(&mut World, u64);
    let changes: [(&str, Change); 6] = [
        ("a drain", |world, late| _ = world.weigh(0, late, 0)),
        ("a weight", |world, late| _ = world.weigh(0, late, 5)),
        ("a leave", |world, late| world.depart(late)),
        ("a newcomer", |world, _| {
            let newcomer = world.open();
            world.join(newcomer).unwrap();
            world.begin_share(newcomer);
        }),
        ("a first look", |world, _| {
            let newcomer = world.open();
            world.join(newcomer).unwrap();
            world.replace_unread(newcomer);
        }),
        ("a round", |world, late| {
            world.set_balance(Some(Balance::All));
            let gone = world.in_slot(1);
            for (bucket, owner) in (0..).zip(world.owners()) {
                world.count(bucket, if owner == gone { 50 } else { 1 });
            }
            world.idle(2 * ROUND_NS);
            world.level(late);
        }),
    ];
    for (what, change) in changes {
        let (mut world, gone, late) = left();
        let before = world.owners();
        change(&mut world, late);
        world.send(60);
        for (before, now) in before.iter().zip(world.owners()) {
            assert_eq!(*before == gone, now == gone, "{what}");
        }
        let first = world.members()[0];
        world.attend(first);
        assert_eq!(world.taker_of(gone), Some(first), "{what}");
        assert!(!world.owners().contains(&gone), "{what}");
        world.recover();
        world.settle_all();
        world.check_ledger();
    }
}

#[test]
fn one_that_nobody_succeeds_in_time_keeps_its_buckets_until_somebody_has_its_ring() {
    let mut world = World::new(7);
    let [first, gone, late] = [0, 7, 0].map(|name| {
        world.idle(1_000_000);
        let member = if name == 0 {
            world.open()
        } else {
            world.open_named(name)
        };
        world.join(member).unwrap();
        world.begin_share(member);
        member
    });
    world.send(20);
    let before = world.owners();
    world.close(gone);
    world.attend(late);
    assert_eq!(world.awaited(), [gone]);
    world.idle(GRACE_NS);
    world.attend(late);
    assert_eq!((world.awaited(), world.taker_of(gone)), (Vec::new(), None));
    assert!(world.owners() == before, "buckets moved too early");
    world.attend(first);
    assert_eq!(world.taker_of(gone), Some(first));
    assert_eq!(owned(&world), [2048, 2048]);
    world.settle_all();
    world.check();
    world.check_ledger();
}
