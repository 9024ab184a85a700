//! A member that came lately leaves one that is gone to members that were there before, for a time.

use super::owned;
use super::world::World;
use crate::slots::classes::LEFT_NS;

/// Three members, of which the second is gone. The third knows it, and leaves it to the first.
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
    assert_eq!(world.heir_of(gone), None);
    (world, gone, late)
}

#[test]
fn who_takes_a_ring_when_the_time_is_just_over_gives_the_buckets_away() {
    let (mut world, gone, late) = left();
    // Nanosecond by nanosecond, so that the time is over between any two looks at the clock.
    world.slow_down(1);
    let mut taken = 0;
    let ends = LEFT_NS - 50..LEFT_NS + 2;
    for ns in ends.clone() {
        let mut world = world.clone();
        world.idle(ns);
        world.attend(late);
        if world.heir_of(gone) == Some(late) {
            taken += 1;
            assert_eq!(owned(&world), [2048, 2048], "after {ns} ns");
            world.settle_all();
            world.check();
            world.check_ledger();
        }
    }
    assert!(taken > 0 && taken < ends.count());
}
