//! A group's first member is never read. Other members get its share and its packets as soon as one
//! of these members is read.

use super::owned;
use super::world::World;
use crate::slots::silence::{CHECK_NS, SILENT_NS};
use crate::table::State;
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::BUCKETS;

/// A group whose first member has unread packets, and another member.
fn unread(seed: u64) -> (World, u64, u64) {
    let mut world = World::new(seed);
    let (first, second) = (world.open(), world.open());
    world.join(first).unwrap();
    world.send(20);
    world.join(second).unwrap();
    world.send(20);
    (world, first, second)
}

#[test]
fn who_is_read_first_has_it_all() {
    let (mut world, first, second) = unread(1);
    world.look(second);
    assert!(world.owners().iter().all(|&owner| owner == second));
    assert_eq!(world.borrowed(), [(first, second)]);
    world.read_borrowed();
    assert_eq!(world.unread(first), 0);
    assert_eq!(world.table().row(Slot(0)).taker, 0);
    world.check();
    world.check_ledger();
}

#[test]
fn a_member_that_is_read_keeps_its_share() {
    let (mut world, first, second) = unread(2);
    world.look(first);
    world.look(second);
    assert_eq!(owned(&world), [2048, 2048]);
    assert_eq!(world.borrowed(), []);
}

#[test]
fn who_is_read_after_all_gets_its_share_and_its_ring() {
    let (mut world, first, second) = unread(3);
    world.look(second);
    world.look(first);
    assert_eq!(owned(&world), [2048, 2048]);
    assert_eq!(world.table().row(Slot(0)).taker, 0);
    world.attend(second);
    assert_eq!(world.borrowed(), [], "only the owner reads its ring");
    world.check();
}

#[test]
fn a_dead_readers_borrowed_ring_is_read_on() {
    let (mut world, first, second) = unread(4);
    let third = world.open();
    world.join(third).unwrap();
    world.look(second);
    world.look(third);
    world.close(second);
    world.attend(third);
    assert!(world.borrowed().contains(&(first, third)));
    world.read_borrowed();
    world.settle_all();
    world.check();
    world.check_ledger();
}

#[test]
fn who_dies_while_its_ring_is_read_is_inherited_once() {
    let (mut world, first, second) = unread(5);
    world.look(second);
    world.close(first);
    world.attend(second);
    assert_eq!(world.table().row(Slot(0)).state, State::TakenOver);
    assert_eq!(world.borrowed(), [(first, second)], "the same member reads");
    world.settle_all();
    world.check();
    world.check_ledger();
}

#[test]
fn who_dies_while_it_takes_an_unread_members_share_is_finished_by_the_next() {
    for steps in (0..300).step_by(7) {
        let (mut world, first, second) = unread(6);
        let third = world.open();
        world.join(third).unwrap();
        let looked = world.dying(second, steps, |world| world.look(second));
        world.send(20);
        world.look(third);
        world.read_borrowed();
        world.settle_all();
        world.check();
        let of_first = world.owners().iter().filter(|&&it| it == first).count();
        assert_eq!(of_first, 0, "after {steps} steps");
        assert_eq!(world.unread(first), 0, "after {steps} steps");
        if looked.is_ok() {
            break;
        }
    }
}

#[test]
fn who_reads_at_last_and_falls_silent_keeps_its_ring() {
    let (mut world, first, second) = unread(7);
    let third = world.open();
    world.join(third).unwrap();
    world.look(second);
    world.close(second);
    world.attend(third);
    // No other member had a share, so the first member has one again. Then the first member is
    // read.
    world.settle_all();
    world.look(first);
    world.look(third);
    for _ in 0..2 * SILENT_NS / CHECK_NS {
        world.idle(CHECK_NS);
        world.send(20);
        world.read(third);
        world.look_for_silent(third);
        world.attend(third);
    }
    assert_eq!(owned(&world), [0, 4096]);
    assert_eq!(world.borrowed(), [], "the owner may read again");
    world.close(first);
    world.attend(third);
    assert_eq!(world.taker_of(first), Some(third));
    world.settle_all();
    world.check();
    world.check_ledger();
}

#[test]
fn who_only_asks_for_its_descriptor_is_read_by_who_reads_it_already() {
    let (mut world, first, second) = unread(8);
    let third = world.open();
    world.join(third).unwrap();
    world.look(second);
    world.look(third);
    assert_eq!(world.borrowed(), [(first, second)]);
    world.begin_share(first);
    world.send(20);
    world.close(first);
    world.attend(third);
    assert_eq!(world.taker_of(first), Some(second));
    assert_eq!(
        world.borrowed(),
        [(first, second)],
        "only one member reads the ring"
    );
    world.settle_all();
    world.check_ledger();
}

#[test]
fn who_is_left_has_all_when_the_only_reader_closes() {
    for mut world in [World::new(9), World::with_rings(9)] {
        let (first, second, third) = (world.open(), world.open(), world.open());
        for member in [first, second, third] {
            world.join(member).unwrap();
        }
        world.look(second);
        world.send(20);
        world.depart(second);
        assert_eq!(owned(&world), [2048, 2048], "no application has looked");
        world.look(third);
        assert_eq!(world.taker_of(second), Some(third));
        world.read_borrowed();
        world.settle_all();
        assert_eq!(owned(&world), [0, 4096], "the first was never read");
        world.look(first);
        assert_eq!(owned(&world), [2048, 2048]);
        world.check();
        world.check_ledger();
    }
}

#[test]
fn who_dies_while_it_leaves_all_to_who_is_left_is_finished_by_the_next() {
    let steps = (0..40).chain((40..2 * BUCKETS as u64).step_by(199));
    for steps in steps {
        let (mut world, first, second) = unread(10);
        world.look(second);
        let left = world.dying(second, steps, |world| world.depart(second));
        world.send(20);
        world.look(first);
        world.attend(first);
        world.settle_all();
        world.check();
        assert!(world.owners().iter().all(|&owner| owner == first));
        if left.is_ok() {
            return;
        }
    }
    panic!("the change has more steps than were tested");
}
