//! Members of classes: each class divides its own packets, and looks after its own members.

use super::world::World;
use crate::slots::classes::LEFT_NS;
use crate::slots::{Weighed, due_ns};
use crate::table::State;
use fanpcap_buckets::layout::BUCKETS;

/// A group of two members without a class, and two of class 2, all with their shares.
fn two_classes() -> (World, [u64; 4]) {
    let mut world = World::with_classes(7);
    let members = [0, 0, 2, 2].map(|class| {
        let member = world.open_in(class);
        world.join(member).unwrap();
        world.begin_share(member);
        member
    });
    (world, members)
}

fn count(owners: &[u64], member: u64) -> usize {
    owners.iter().filter(|&&it| it == member).count()
}

#[test]
fn the_first_member_of_each_class_owns_all_of_its_buckets() {
    let mut world = World::with_classes(7);
    let [first, other] = [0, 2].map(|class| {
        let member = world.open_in(class);
        world.join(member).unwrap();
        member
    });
    assert_eq!(count(&world.owners_in(0), first), BUCKETS);
    assert_eq!(count(&world.owners_in(2), other), BUCKETS);
    assert!(!world.table().part(1).has_ranks());
    let next = world.open_in(2);
    world.join(next).unwrap();
    assert_eq!(count(&world.owners_in(2), other), BUCKETS, "no share yet");
    world.begin_share(next);
    assert_eq!(count(&world.owners_in(2), next), BUCKETS / 2);
    assert_eq!(count(&world.owners_in(0), first), BUCKETS);
    world.check();
}

#[test]
fn a_group_has_members_of_a_class_until_the_last_of_them_is_gone() {
    let (mut world, [first, _, one, other]) = two_classes();
    assert_eq!(world.table().class_of_members(), Some(2));
    world.depart(one);
    assert_eq!(world.table().class_of_members(), Some(2));
    world.close(other);
    world.attend(first);
    assert_eq!(world.table().class_of_members(), None);
}

#[test]
fn a_death_moves_the_dead_ones_buckets_within_its_class() {
    let (world, members) = two_classes();
    for (which, taker) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
        let mut world = world.clone();
        let (dead, taker) = (members[which], members[taker]);
        let before = [0, 2].map(|class| world.owners_in(class));
        world.send(300);
        world.close(dead);
        // The member that notices first moves the buckets.
        for member in world.members() {
            world.attend(member);
        }
        let after = [0, 2].map(|class| world.owners_in(class));
        for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
            let expected = if *before == dead { taker } else { *before };
            assert_eq!(*after, expected);
        }
        assert_eq!(world.taker_of(dead), Some(taker), "a member of its class");
        world.settle_all();
        assert_eq!(world.lost()[1], 0);
        world.check();
        world.check_ledger();
    }
}

#[test]
fn what_a_class_leaves_is_given_up_when_it_has_no_members() {
    let (mut world, members) = two_classes();
    world.send(300);
    let [no_member, _] = world.lost();
    assert_eq!(no_member, 100, "class 63 never had a member");
    for member in [members[2], members[3]] {
        world.close(member);
    }
    world.attend(members[0]);
    assert!(!world.table().part(2).has_ranks());
    world.send(300);
    assert_eq!(world.lost()[0], 300);
    world.settle_all();
    assert_eq!(world.lost()[1], 100);
    assert_eq!(world.table().gone().members, 2);
    world.check();
    world.check_ledger();
    // Another member of the class gets its packets again.
    let newcomer = world.open_in(2);
    world.join(newcomer).unwrap();
    assert_eq!(count(&world.owners_in(2), newcomer), BUCKETS);
    world.check();
}

#[test]
fn members_of_another_class_stop_the_hang_up_where_the_dead_ones_class_does_not() {
    let (mut world, members) = two_classes();
    let [other, _, hangs, dead] = members;
    world.send(300);
    world.close(dead);
    world.attend(other);
    world.look_for_silent(other);
    let due = |world: &World| due_ns(world.table(), other, world.now_ns());
    let state = |world: &World| {
        let mut rows = world.table().rows();
        let row = rows.find(|(_, row)| row.cookie == dead);
        row.map(|(_, row)| row.state)
    };
    assert_eq!(
        count(&world.owners_in(2), hangs),
        BUCKETS / 2,
        "only the member that reads the ring may give the buckets away"
    );
    assert!(due(&world).is_some_and(|ns| ns > 0 && ns <= LEFT_NS));
    world.idle(LEFT_NS);
    assert_eq!(due(&world), Some(0));
    world.attend(other);
    assert!(!world.has_lifeline(dead), "another class cuts the lifeline");
    assert_eq!(count(&world.owners_in(2), hangs), BUCKETS / 2, "none moved");
    assert!(
        due(&world) > Some(LEFT_NS),
        "only the next check for silent members is due"
    );
    assert_eq!(state(&world), Some(State::Dead));
    world.attend(hangs);
    assert_eq!(world.taker_of(dead), Some(hangs));
    assert_eq!(count(&world.owners_in(2), hangs), BUCKETS);
    world.settle_all();
    assert_eq!(world.lost()[1], 0);
    world.check_ledger();
}

/// A member's own cookie as its taker means that other members shall read its ring.
#[test]
fn members_of_another_class_stop_the_hang_up_of_one_that_was_never_read() {
    let mut world = World::with_classes(7);
    let [other, unread, reader] = [0, 2, 2].map(|class| {
        let member = world.open_in(class);
        world.join(member).unwrap();
        member
    });
    world.look(other);
    world.send(100);
    world.replace_unread(reader);
    world.close(unread);
    world.attend(other);
    world.idle(LEFT_NS);
    world.attend(other);
    assert!(!world.has_lifeline(unread));
    world.attend(reader);
    assert_eq!(world.taker_of(unread), Some(reader));
}

#[test]
fn the_last_member_of_a_class_can_not_be_drained() {
    let (mut world, members) = two_classes();
    assert_eq!(world.weigh(0, members[2], 0), Weighed::Done);
    assert_eq!(count(&world.owners_in(2), members[3]), BUCKETS);
    assert_eq!(world.weigh(0, members[3], 0), Weighed::Last);
    world.check();
    world.close(members[3]);
    for member in world.members() {
        world.attend(member);
    }
    assert_eq!(
        count(&world.owners_in(2), members[2]),
        BUCKETS,
        "the drained member gets a weight again"
    );
    world.settle_all();
    world.check();
}

#[test]
fn a_member_that_is_silent_keeps_its_share_where_its_class_has_nobody_else() {
    let (mut world, members) = two_classes();
    world.close(members[3]);
    world.attend(members[2]);
    world.settle_all();
    world.send(300);
    let changes = |world: &World| world.table().get(crate::table::at::GENERATION);
    let before = changes(&world);
    for _ in 0..12 {
        world.read(members[0]);
        world.idle(2_000_000_000);
        world.look_for_silent(members[0]);
    }
    assert_eq!(count(&world.owners_in(2), members[2]), BUCKETS);
    assert_eq!(
        count(&world.owners_in(0), members[0]),
        BUCKETS,
        "the silent member keeps its share"
    );
    assert_eq!(changes(&world), before + 1);
}

#[test]
fn a_successor_has_its_predecessors_class() {
    let mut world = World::with_classes(7);
    let members = [0, 2, 2].map(|class| {
        let member = world.open_named(7);
        world.set_class(member, class);
        world.join(member).unwrap();
        world.begin_share(member);
        member
    });
    let before = world.owners_in(2);
    world.close(members[1]);
    world.attend(members[0]);
    assert_eq!(world.awaited(), [members[1]]);
    assert!(world.owners_in(2) == before);
    let other = world.open_named(7);
    world.join(other).unwrap();
    world.begin_share(other);
    assert_eq!(
        world.awaited(),
        [members[1]],
        "a member of another class is no successor"
    );
    let successor = world.open_named(7);
    world.set_class(successor, 2);
    world.join(successor).unwrap();
    world.begin_share(successor);
    for (before, after) in before.into_iter().zip(world.owners_in(2)) {
        let expected = if before == members[1] {
            successor
        } else {
            before
        };
        assert_eq!(after, expected);
    }
    world.attend(successor);
    world.settle_all();
    world.check();
}
