//! Checks the slot that a group's table gives for a hash or for a member's number.

use super::frames::*;
use super::*;
use crate::hash::{both, end4, finish};

/// A table in which the slot of each bucket and of each rank is the offset of its byte, modulo 251.
fn numbered(ranks: u32) -> Table {
    let table = table();
    for (number, slot) in table.bytes()[..layout::RANK_COUNT].iter().enumerate() {
        slot.store(u8::try_from(number % 251).unwrap(), Relaxed);
    }
    set_ranks(&table, ranks);
    table
}

fn set_ranks(table: &Table, ranks: u32) {
    let count = table.view::<std::sync::atomic::AtomicU32>(layout::RANK_COUNT, 1);
    count.unwrap()[0].store(ranks, Relaxed);
}

fn slot_of(offset: usize) -> u32 {
    u32::try_from(offset % 251).unwrap()
}

fn run(main: Function, table: &Table, frame: &[u8]) -> u32 {
    let object = by_table(&program(main), GroupOptions::default()).unwrap();
    load_with(&object, table).unwrap().run(frame).unwrap()
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_hash_goes_by_its_bucket() {
    let ends = [(SOURCE, 1111), (DESTINATION, 2222)];
    let [one, other] = ends.map(|(address, port)| end4(address.into(), port));
    let bucket = layout::bucket(finish(both(one, other)));
    let table = numbered(0);
    for main in [by_flow(), flow_mode(), Function::Steer(Steer::Rss)] {
        assert_eq!(run(main, &table, &udp4()), slot_of(bucket));
    }
    table.bytes()[bucket].store(200, Relaxed);
    assert_eq!(run(by_flow(), &table, &udp4()), 200);
}

#[test]
#[ignore = "needs root: eBPF"]
fn what_is_dropped_or_has_no_hash_goes_by_bucket_0() {
    let table = numbered(3);
    table.bytes()[0].store(77, Relaxed);
    for main in [
        by_flow(),
        Function::Drop,
        Function::Pass,
        Function::Steer(Steer::Rss),
    ] {
        assert_eq!(run(main, &table, &arp()), 77);
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_number_goes_by_its_rank() {
    let to = |member| Function::Steer(Steer::To(member));
    let table = numbered(5);
    for member in [0, 4, 5, 13, i32::MAX as u32] {
        let rank = member as usize % 5;
        assert_eq!(
            run(to(member), &table, &arp()),
            slot_of(layout::RANKS + rank)
        );
    }
    // The maximum number of ranks, and larger numbers, which members never write.
    for (ranks, member, rank) in [(256, 255, 255), (256, 256, 0), (1 << 20, 300, 44)] {
        set_ranks(&table, ranks);
        assert_eq!(
            run(to(member), &table, &arp()),
            slot_of(layout::RANKS + rank)
        );
    }
    set_ranks(&table, 0);
    assert_eq!(run(to(7), &table, &arp()), 0);
}

#[test]
#[ignore = "needs root: eBPF"]
fn turns_and_cpus_are_numbers() {
    let table = numbered(3);
    let object = by_table(
        &program(Function::Steer(Steer::RoundRobin)),
        GroupOptions::default(),
    )
    .unwrap();
    let turns = load_with(&object, &table).unwrap();
    let found: std::collections::BTreeSet<_> =
        (0..64).map(|_| turns.run(&udp4()).unwrap()).collect();
    let ranks = [0, 1, 2].map(|rank| slot_of(layout::RANKS + rank));
    assert_eq!(found, ranks.into_iter().collect());
    set_ranks(&table, 1);
    assert_eq!(run(Function::Steer(Steer::Cpu), &table, &udp4()), ranks[0]);
}
