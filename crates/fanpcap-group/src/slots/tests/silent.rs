//! Members that live but do not read: other members get their share until they look for packets
//! again.

use super::group;
use super::world::World;
use crate::slots::silence::{CHECK_NS, SILENT_NS};

/// Lets this much time pass, while the members of `readers` read and look after their group.
fn pass(world: &mut World, ns: u64, readers: &[u64]) {
    for _ in 0..ns / CHECK_NS {
        world.idle(CHECK_NS);
        world.send(20);
        for &reader in readers {
            world.read(reader);
            world.look_for_silent(reader);
            world.attend(reader);
        }
    }
}

#[test]
fn who_does_not_read_loses_its_share_and_gets_it_back() {
    let mut world = group(4);
    let (silent, before) = (world.in_slot(2), world.owners());
    let readers: Vec<u64> = world
        .members()
        .into_iter()
        .filter(|it| *it != silent)
        .collect();
    pass(&mut world, SILENT_NS, &readers);
    assert_eq!(world.owners(), before, "the share moved too early");
    pass(&mut world, SILENT_NS / 2, &readers);
    for (before, after) in before.into_iter().zip(world.owners()) {
        assert!(if before == silent {
            after != silent
        } else {
            before == after
        });
    }
    world.check();
    let before = world.owners();
    world.begin_share(silent);
    for (before, after) in before.into_iter().zip(world.owners()) {
        assert!(before == after || after == silent);
    }
    world.check();
    world.check_ledger();
}

#[test]
fn who_reads_slowly_or_has_nothing_to_read_keeps_its_share() {
    let mut world = group(3);
    let [slow, idle, reader] = [0, 1, 2].map(|slot| world.in_slot(slot));
    let before = world.owners();
    for _ in 0..5 {
        world.read_one(slow);
        pass(&mut world, SILENT_NS / 2, &[idle, reader]);
        // The ring was read to the end each time.
        assert_eq!(world.unread(idle), 0);
    }
    assert_eq!(world.owners(), before);
}

#[test]
fn nobody_is_silent_because_nobody_looked() {
    let mut world = group(3);
    let [stuck, other, reader] = [0, 1, 2].map(|slot| world.in_slot(slot));
    let before = world.owners();
    world.send(50);
    world.look_for_silent(reader);
    for _ in 0..3 {
        world.idle(SILENT_NS);
        world.look_for_silent(reader);
    }
    assert!(world.unread(stuck) > 0 && world.unread(other) > 0);
    assert_eq!(world.owners(), before);
}

#[test]
fn the_last_reader_has_it_all_and_keeps_it() {
    let mut world = group(3);
    let reader = world.in_slot(1);
    pass(&mut world, SILENT_NS * 2, &[reader]);
    assert!(world.owners().iter().all(|owner| *owner == reader));
    pass(&mut world, SILENT_NS * 2, &[]);
    world.check();
    assert!(world.owners().iter().all(|owner| *owner == reader));
}

#[test]
fn who_dies_while_it_gives_a_share_away_is_finished_by_the_next() {
    let mut world = group(4);
    let [silent, reader] = [1, 2].map(|slot| world.in_slot(slot));
    let readers: Vec<u64> = world
        .members()
        .into_iter()
        .filter(|it| *it != silent)
        .collect();
    pass(&mut world, SILENT_NS, &readers);
    world.idle(CHECK_NS * 11 / 10);
    let before = world.owners();
    let mut steps = 0;
    loop {
        let mut world = world.clone();
        let looked = world.dying(reader, steps, |world| world.look_for_silent(reader));
        world.send(20);
        world.recover();
        world.check();
        for (before, after) in before.iter().zip(world.owners()) {
            assert!(*before == after || [silent, reader].contains(before) || after == silent);
        }
        if looked.is_ok() {
            break;
        }
        steps += if steps < 20 { 1 } else { 41 };
    }
    assert!(steps > 100, "{steps} steps");
}
