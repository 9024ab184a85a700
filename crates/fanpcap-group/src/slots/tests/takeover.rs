//! Named members leave or die, and new members join with their names.

use super::world::World;
use crate::slots::succession::GRACE_NS;

const NAME: u64 = 7;

/// A group of three members without a name, and one with a name. Also returns the named member.
fn group_with_a_name() -> (World, u64) {
    let mut world = super::group(3);
    let named = world.open_named(NAME);
    world.join(named).unwrap();
    world.begin_share(named);
    (world, named)
}

/// The named member dies. Returns the former owners.
fn die(world: &mut World, named: u64) -> Vec<u64> {
    let before = world.owners();
    world.close(named);
    let survivor = world.members()[0];
    world.attend(survivor);
    assert_eq!(world.awaited(), [named]);
    before
}

/// Another member with the name joins.
fn come_back(world: &mut World) -> u64 {
    let successor = world.open_named(NAME);
    world.join(successor).unwrap();
    successor
}

#[test]
fn a_successor_gets_buckets_and_ring_and_nothing_else_moves() {
    for leaves in [false, true] {
        let (mut world, named) = group_with_a_name();
        world.send(50);
        if leaves {
            world.depart(named);
        }
        let sticky_id = world.sticky_id(named);
        let before = die(&mut world, named);
        assert_eq!(world.owners(), before, "buckets moved without a successor");
        world.send(50);
        let successor = come_back(&mut world);
        assert_eq!(world.owners(), before, "the successor has not read yet");
        world.send(50);
        world.begin_share(successor);
        world.attend(successor);
        assert_eq!(world.taker_of(named), Some(successor));
        assert_eq!(world.sticky_id(successor), sticky_id);
        assert!(world.awaited().is_empty());
        assert_eq!(world.table().takeovers(), 1);
        world.check();
        world.settle_all();
        world.check_ledger();
    }
}

#[test]
fn when_the_grace_period_ends_others_have_it_all() {
    let (mut world, named) = group_with_a_name();
    let before = die(&mut world, named);
    world.send(50);
    world.idle(GRACE_NS / 2);
    world.recover();
    assert_eq!(world.owners(), before);
    world.end_grace();
    for (before, after) in before.into_iter().zip(world.owners()) {
        assert!(before == after || before == named);
    }
    world.check();
    world.settle_all();
    world.check_ledger();
    // A further member with the name is an ordinary newcomer.
    let late = come_back(&mut world);
    world.begin_share(late);
    world.check();
}

#[test]
fn the_grace_period_begins_anew_when_the_successor_has_joined() {
    let (mut world, named) = group_with_a_name();
    let before = die(&mut world, named);
    world.idle(GRACE_NS * 9 / 10);
    let successor = come_back(&mut world);
    world.idle(GRACE_NS * 9 / 10);
    world.recover();
    assert_eq!(world.owners(), before);
    world.begin_share(successor);
    world.recover();
    world.check();
}

#[test]
fn nobody_is_awaited_whose_ring_is_half_full() {
    let (mut world, named) = group_with_a_name();
    die(&mut world, named);
    while !world.awaited().is_empty() {
        world.send(8);
        world.recover();
    }
    let unread = world.unread(named);
    assert!((30..40).contains(&unread), "{unread}");
    world.check();
    world.settle_all();
    world.check_ledger();
}

#[test]
fn the_second_handle_of_a_name_succeeds_the_second() {
    let mut world = super::group(1);
    let both = [come_back(&mut world), come_back(&mut world)];
    both.into_iter().for_each(|it| world.begin_share(it));
    let before = world.owners();
    both.into_iter().for_each(|it| world.close(it));
    let again = [come_back(&mut world), come_back(&mut world)];
    again.into_iter().for_each(|it| world.begin_share(it));
    for (before, after) in before.into_iter().zip(world.owners()) {
        let second = both.iter().position(|it| *it == before);
        assert_eq!(after, second.map_or(before, |second| again[second]));
    }
    world.recover();
    world.check();
}

#[test]
fn a_newcomer_alone_with_one_that_is_awaited_gets_all_in_the_end() {
    let mut world = World::new(3);
    let named = come_back(&mut world);
    let idle = world.open();
    world.join(idle).unwrap();
    let before = die(&mut world, named);
    assert_eq!(world.owners(), before, "a newcomer took buckets");
    world.end_grace();
    assert!(world.owners().iter().all(|owner| *owner == idle));
    world.check();
}

#[test]
fn what_an_awaited_one_had_taken_over_its_successor_reads() {
    let (mut world, named) = group_with_a_name();
    world.send(100);
    die(&mut world, named);
    let second = come_back(&mut world);
    world.begin_share(second);
    world.attend(second);
    // The second member has read nothing yet.
    world.close(second);
    world.recover();
    assert_eq!(world.taker_of(named), Some(second), "another took the ring");
    let third = come_back(&mut world);
    world.begin_share(third);
    world.attend(third);
    assert_eq!(
        [named, second].map(|it| world.taker_of(it)),
        [Some(third); 2]
    );
    world.check();
    world.settle_all();
    world.check_ledger();
}

/// Kills the successor at every step of its takeover: no other member's buckets move.
#[test]
fn a_successor_that_dies_in_any_step_leaves_the_others_alone() {
    let (mut world, named) = group_with_a_name();
    world.send(100);
    let before = die(&mut world, named);
    let mut steps = 0;
    loop {
        let mut world = world.clone();
        let successor = come_back(&mut world);
        let is_whole = world.dying(successor, steps, |world| {
            world.begin_share(successor);
            world.attend(successor);
        });
        world.send(20);
        world.recover();
        world.check();
        for (before, after) in before.iter().zip(world.owners()) {
            assert!(*before == after || *before == named);
        }
        let last = come_back(&mut world);
        world.begin_share(last);
        world.recover();
        world.end_grace();
        world.check();
        world.settle_all();
        world.check_ledger();
        if is_whole.is_ok() {
            break;
        }
        steps += if steps < 20 { 1 } else { 41 };
    }
    assert!(steps > 100, "{steps} steps");
}
