//! A founded group loses all its members, and goes on with the next ones.

use super::world::World;
use super::{filled, owned};
use crate::slots::succession::GRACE_NS;

fn founded(members: usize) -> World {
    filled(World::founded(7), members)
}

#[test]
fn a_newcomer_takes_over_what_the_last_members_left() {
    let mut world = founded(2);
    world.send(50);
    for member in world.members() {
        world.close(member);
    }
    world.send(50);
    let newcomer = world.open();
    world.join(newcomer).unwrap();
    world.attend(newcomer);
    world.begin_share(newcomer);
    world.attend(newcomer);
    world.check();
    world.settle_all();
    assert_eq!(world.lost(), [0, 0]);
    assert_eq!(owned(&world), [4096]);
    world.check_ledger();
}

#[test]
fn the_founder_settles_and_the_group_begins_again() {
    let mut world = founded(3);
    world.send(50);
    let before = world.table().gone();
    assert!(!world.settle_by_founder(), "members live");
    for member in world.members() {
        world.close(member);
    }
    assert!(world.settle_by_founder());
    let gone = world.table().gone();
    assert_eq!((before.members, gone.members, gone.received), (0, 3, 50));
    assert_eq!(world.table().positions(), 0);
    world.send(10);
    let newcomer = world.open();
    world.join(newcomer).unwrap();
    assert_eq!(owned(&world), [4096]);
    world.send(10);
    world.check();
    world.check_ledger();
}

#[test]
fn a_successor_is_awaited_before_the_founder_settles() {
    let mut world = World::founded(7);
    let named = world.open_named(7);
    world.join(named).unwrap();
    world.close(named);
    assert!(!world.settle_by_founder());
    world.idle(GRACE_NS / 2);
    assert!(!world.settle_by_founder());
    world.idle(GRACE_NS);
    assert!(world.settle_by_founder());
}
