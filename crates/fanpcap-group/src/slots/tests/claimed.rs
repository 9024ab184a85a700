//! On XDP newcomers claim slots before they join. While a slot is claimed, other newcomers take the
//! slots after it.

use super::*;

fn on_xdp(members: usize) -> World {
    filled(World::with_rings(7), members)
}

#[test]
fn a_slot_that_is_claimed_is_left_to_its_newcomer() {
    let mut world = on_xdp(2);
    let [claims, other, last] = [(); 3].map(|()| world.open());
    let slot = world.choose(claims, &[]).unwrap();
    assert_eq!(slot, Slot(2));
    assert_eq!(world.choose(other, &[slot]), Some(Slot(3)));
    world.join_at(other, Slot(3)).unwrap();
    world.begin_share(other);
    world.check();
    // The slot is still claimed when the array's end is beyond it.
    assert_eq!(world.table().positions(), 4);
    assert_eq!(world.choose(last, &[slot]), Some(Slot(4)));
    assert_eq!(world.choose(last, &[]), Some(slot), "the claim has ended");
    world.join_at(claims, slot).unwrap();
    world.begin_share(claims);
    world.check();
    assert_eq!(owned(&world), [1024; 4]);
}

#[test]
fn slots_whose_newcomers_have_not_come_are_given_up_with_the_last() {
    let mut world = on_xdp(2);
    let other = world.open();
    world.join_at(other, Slot(3)).unwrap();
    world.begin_share(other);
    assert_eq!(world.table().positions(), 4);
    let taker = world.members()[0];
    world.close(other);
    world.attend(taker);
    world.settle_all();
    assert_eq!(world.table().positions(), 2);
    world.check();
}
