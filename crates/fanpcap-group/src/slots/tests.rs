//! Members of a simulated group join, leave, and die between any two steps of a change. Each bucket
//! has one living owner, no buckets move between members that stay, and each packet is read once.

mod world;
mod takeover;
mod silent;
mod unread;
mod pair;
mod classes;
mod elders;
mod rounds;
mod claimed;
mod founded;

use super::*;
use crate::table::MAGIC;
use fanpcap_buckets::layout::BUCKETS;
use world::{Killed, World};

/// How many buckets each member owns.
fn owned(world: &World) -> Vec<usize> {
    let mut counts: Vec<usize> = world
        .members()
        .iter()
        .map(|&member| world.owners().iter().filter(|&&it| it == member).count())
        .collect();
    counts.sort_unstable();
    counts
}

/// A group of this many members, all with a share.
fn group(members: usize) -> World {
    filled(World::new(7), members)
}

fn filled(mut world: World, members: usize) -> World {
    for number in 0..members {
        let member = world.open();
        // In a group that has classes, alternates between two classes.
        world.set_class(member, if number % 2 == 0 { 0 } else { 2 });
        world.join(member).unwrap();
        world.begin_share(member);
    }
    world
}

#[test]
fn the_first_member_owns_all_and_a_newcomer_nothing_until_it_looks() {
    let mut world = World::new(1);
    let (first, second) = (world.open(), world.open());
    world.join(first).unwrap();
    assert!(world.owners().iter().all(|&owner| owner == first));
    assert_eq!(world.table().get(at::MAGIC), MAGIC);
    world.join(second).unwrap();
    assert!(world.owners().iter().all(|&owner| owner == first));
    world.begin_share(second);
    assert_eq!(owned(&world), [2048, 2048]);
}

#[test]
fn a_join_moves_one_share_and_a_death_the_dead_ones_only() {
    let mut world = group(4);
    let before = world.owners();
    let fifth = world.open();
    world.join(fifth).unwrap();
    world.begin_share(fifth);
    let after = world.owners();
    let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert!(moved == BUCKETS / 5 || moved == BUCKETS / 5 + 1, "{moved}");
    for slot in [0, 2, 4] {
        let mut world = world.clone();
        let dead = world.in_slot(slot);
        let before = world.owners();
        world.close(dead);
        let taker = world.members()[0];
        world.attend(taker);
        world.check();
        for (before, after) in before.into_iter().zip(world.owners()) {
            assert!(before == after || before == dead);
        }
    }
}

#[test]
fn a_newcomer_takes_a_placeholders_slot_and_the_last_slots_are_given_up() {
    let mut world = group(4);
    let (second, last) = (world.in_slot(1), world.in_slot(3));
    world.close(second);
    let taker = world.members()[0];
    world.attend(taker);
    world.settle_all();
    assert_eq!(world.table().positions(), 4);
    assert_eq!(world.table().row(Slot(1)).state, State::Vacant);
    let newcomer = world.open();
    assert_eq!(world.join(newcomer).unwrap(), Slot(1));
    world.check();
    // Then the last two end. The first is already a placeholder when the second ends.
    world.close(world.in_slot(2));
    world.attend(taker);
    world.settle_all();
    world.close(last);
    world.attend(taker);
    world.settle_all();
    assert_eq!(world.table().positions(), 2);
    world.check();
}

/// A group of five, in which a member has taken the slot of a member that has ended.
fn with_a_slot_taken_again() -> World {
    let mut world = group(5);
    world.close(world.in_slot(0));
    let taker = world.members()[0];
    world.attend(taker);
    world.settle_all();
    let newcomer = world.open();
    world.join(newcomer).unwrap();
    world.begin_share(newcomer);
    world
}

#[test]
fn a_device_that_was_down_gives_slots_new_numbers_and_moves_nothing() {
    let mut world = with_a_slot_taken_again();
    let before = world.owners();
    world.flap();
    for member in world.members() {
        world.hear(member);
        assert_eq!(world.owners(), before);
        world.check();
    }
}

#[test]
fn who_can_not_list_the_sockets_leaves_the_numbers_to_others() {
    let mut world = with_a_slot_taken_again();
    let before = world.owners();
    world.flap();
    assert_ne!(world.owners(), before);
    let members = world.members();
    world.blind(true);
    world.hear(members[0]);
    world.blind(false);
    world.hear(members[1]);
    assert_eq!(world.owners(), before);
    world.check();
}

#[test]
fn a_newcomer_numbers_the_slots_when_nobody_has_noticed_that_the_device_was_down() {
    let mut world = group(5);
    let taker = world.in_slot(4);
    world.close(world.in_slot(0));
    world.attend(taker);
    world.settle_all();
    let late = world.open();
    world.join(late).unwrap();
    world.begin_share(late);
    world.close(world.in_slot(2));
    world.attend(taker);
    world.settle_all();
    let before = world.owners();
    world.flap();
    let newcomer = world.open();
    world.join(newcomer).unwrap();
    assert_eq!(world.owners(), before);
    world.check();
    for member in world.members() {
        world.hear(member);
        assert_eq!(world.owners(), before, "the slots were renumbered earlier");
    }
}

#[test]
fn a_member_keeps_its_seat_when_its_slot_gets_another_number() {
    let mut world = group(4);
    world.close(world.in_slot(1));
    let taker = world.in_slot(0);
    world.attend(taker);
    world.settle_all();
    let newcomer = world.open();
    world.join(newcomer).unwrap();
    // The sticky id has the number that the former member had, and a new stamp.
    assert_eq!(world.sticky_id(newcomer), (newcomer << 8) | 1);
    world.flap();
    world.hear(taker);
    assert_eq!(world.in_slot(3), newcomer);
    assert_eq!(world.sticky_id(newcomer), (newcomer << 8) | 1);
    world.check();
}

#[test]
fn a_drained_members_buckets_alone_move_until_nobody_else_is_there() {
    let mut world = group(4);
    let before = world.owners();
    let (drained, other) = (world.in_slot(2), world.in_slot(0));
    assert_eq!(world.weigh(0, drained, 0), Weighed::Done);
    world.check();
    for (before, after) in before.iter().zip(world.owners()) {
        assert!(*before == after || (*before == drained && after != drained));
    }
    // Check two cases. First the drained member leaves, and no bucket moves. Then the drained
    // member gets a weight, and takes its share.
    let mut left = world.clone();
    left.depart(drained);
    left.attend(other);
    left.settle_all();
    left.check();
    assert_eq!(left.owners(), world.owners());
    assert_eq!(world.weigh(0, drained, 1), Weighed::Done);
    assert_eq!(owned(&world), [1024; 4]);
    assert_eq!(world.weigh(0, 99, 0), Weighed::Gone);
    for slot in 1..4 {
        assert_eq!(world.weigh(0, world.in_slot(slot), 0), Weighed::Done);
    }
    assert_eq!(world.weigh(0, other, 0), Weighed::Last);
    world.close(other);
    let taker = world.in_slot(1);
    world.attend(taker);
    world.settle_all();
    world.check();
    assert_eq!(owned(&world).iter().sum::<usize>(), BUCKETS);
}

#[test]
fn a_full_group_and_a_store_without_room_refuse_a_newcomer() {
    let mut world = group(254);
    let last = world.open();
    world.join(last).unwrap();
    let one_more = world.open();
    assert!(matches!(world.join(one_more), Err(Unjoined::Full)));
    world.check();
    // The newcomer can join into a placeholder, although all but one of the group's positions are
    // taken.
    world.close(world.in_slot(1));
    let taker = world.in_slot(0);
    world.attend(taker);
    world.settle_all();
    world.join(one_more).unwrap();
    world.check();
    let mut world = group(3);
    world.store_is_full = true;
    let newcomer = world.open();
    assert!(matches!(world.join(newcomer), Err(Unjoined::FdStore(_))));
    world.close(newcomer);
    world.check();
}

/// Kills the member that makes a change, at every step. The next member must complete the change.
#[test]
fn who_dies_in_any_step_of_any_change_is_finished_by_the_next() {
    type Change = fn(&mut World, u64) -> Result<u64, Killed>;
    let changes: [(&str, Change); 6] = [
        ("join at the end", |world, kill| {
            let newcomer = world.open();
            world.dying(newcomer, kill, |world| _ = world.join(newcomer))
        }),
        ("join in a hole", |world, kill| {
            world.close(world.in_slot(1));
            let taker = world.in_slot(0);
            world.attend(taker);
            world.settle_all();
            let newcomer = world.open();
            world.dying(newcomer, kill, |world| _ = world.join(newcomer))
        }),
        ("first look", |world, kill| {
            let newcomer = world.open();
            world.join(newcomer).unwrap();
            world.dying(newcomer, kill, |world| world.begin_share(newcomer))
        }),
        ("leave", |world, kill| {
            let leaver = world.in_slot(2);
            world.dying(leaver, kill, |world| world.depart(leaver))
        }),
        ("drain", |world, kill| {
            // The process that changes the weight is not a member. It is killed at each step, as a
            // member is.
            let other = world.open();
            let drained = world.in_slot(1);
            world.dying(other, kill, |world| _ = world.weigh(other, drained, 0))
        }),
        ("inherit and vacate", |world, kill| {
            world.close(world.in_slot(3));
            world.close(world.in_slot(1));
            let taker = world.in_slot(2);
            world.dying(taker, kill, |world| {
                world.attend(taker);
                world.settle_all();
            })
        }),
    ];
    let engines = [World::new(7), World::with_rings(7), World::with_classes(7)];
    let engines = engines.map(|world| filled(world, 4));
    let both = |change| engines.iter().map(move |world| (world, change));
    for (four, (name, change)) in changes.into_iter().flat_map(both) {
        let mut four = four.clone();
        four.send(200);
        let mut steps = 0;
        loop {
            let mut world = four.clone();
            let is_whole = change(&mut world, steps).is_ok();
            world.send(200);
            world.recover();
            world.check();
            world.settle_all();
            world.check_ledger();
            if is_whole {
                break;
            }
            // Most steps move one bucket each, so after the first 50 only some of the steps are
            // tested.
            steps += if steps < 50 { 1 } else { 41 };
        }
        assert!(steps > 0, "{name}: {steps} steps");
    }
}

/// The number of runs, each with 40 events. `FANPCAP_RUNS` sets another number.
fn runs() -> u64 {
    let runs = std::env::var("FANPCAP_RUNS").ok();
    runs.and_then(|runs| runs.parse().ok()).unwrap_or(200)
}

/// Lets members join, leave and die, and checks that the ledger adds up at the end.
fn live_and_settle(mut world: World) {
    world.live(40);
    world.recover();
    world.check();
    world.end_grace();
    world.check();
    world.settle_all();
    world.check_ledger();
}

#[test]
fn members_come_go_and_die_at_random_and_the_ledger_adds_up() {
    let engines = [
        World::new,
        World::with_rings,
        World::with_classes,
        World::founded,
    ];
    for (seed, engine) in (0..runs()).flat_map(|seed| engines.map(|it| (seed, it))) {
        live_and_settle(engine(seed));
    }
}
