//! Checks which functions of the delivery a delivering BPF program runs for a packet, and with
//! which arguments.

use super::frames::*;
use super::*;
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::{MapKind, MapSpec};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A delivery that counts its calls in a map ([`Counts`]). The packets' stamps are 1, 2, 3 ...
struct Recording;

/// The calls that a BPF program with [`Recording`] has counted so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    offered: u64,
    dropped: u64,
    missed: u64,
    /// Packets that got a stamp.
    stamped: u64,
    /// Each slot to which packets were delivered, with the number of deliveries and the last stamp.
    slots: Vec<(usize, u64, u64)>,
}

const COUNTS: &str = "counts";
const SLOTS: &str = "slots";
const LOOK_UP: i32 = 1;

fn add(asm: &mut Assembler, at: i32) {
    asm.value(R1, 0, 8 * at);
    asm.set(R2, 1);
    asm.fetch_add(R1, 0, R2);
    asm.alu(Op::Add, R2, 1);
}

impl Delivery for Recording {
    fn maps(&self) -> Vec<MapSpec> {
        vec![
            MapSpec::new(COUNTS, MapKind::Array, 4, 32, 1),
            MapSpec::new(SLOTS, MapKind::Array, 4, 16, 256),
        ]
    }

    fn arrive(&self, asm: &mut Assembler) {
        add(asm, 0);
        asm.set(R9, 7);
    }

    fn stamp(&self, asm: &mut Assembler) {
        add(asm, 3);
        asm.set(R0, R2);
    }

    fn deliver(&self, asm: &mut Assembler, _: Apart, done: Option<Label>) {
        let none = asm.label();
        asm.set(R7, R3);
        asm.store(Width::Word, R10, -4, R2);
        asm.call(LOOK_UP, (map(1), R10 + -4));
        asm.jump_if(R0.is(0), none);
        asm.set(R1, 1);
        asm.atomic_add(R0, 0, R1);
        asm.store(Width::Double, R0, 8, R7);
        asm.bind(none);
        asm.set(R0, 0);
        match done {
            Some(done) => asm.jump(done),
            None => asm.exit(),
        }
    }

    fn filter(&self, asm: &mut Assembler) {
        asm.exit();
    }

    fn drop(&self, asm: &mut Assembler) {
        add(asm, 1);
    }

    fn miss(&self, asm: &mut Assembler) {
        add(asm, 2);
    }

    /// Returns r8. Reads r6 and r9 too, so that the test fails if they were not kept.
    fn leave(&self, asm: &mut Assembler) {
        asm.load(Width::Word, R1, R6, 0);
        asm.exit_with((R9 << 4) | R8);
    }
}

pub(super) fn loaded(main: Function, options: GroupOptions, table: &Table) -> Loaded {
    let object = xdp(&program(main), options, &Recording).unwrap();
    load_with(&object, table).unwrap_or_else(|error| panic!("{error}\n{}", object.listing()))
}

fn counts(loaded: &Loaded) -> Counts {
    let all = loaded.map(COUNTS).unwrap().numbers().unwrap();
    let slots = loaded.map(SLOTS).unwrap();
    let number = |row: &[u8]| u64::from_ne_bytes(row.try_into().unwrap());
    let slots = (0..256).map(|slot| {
        let row = slots.read(u32::try_from(slot).unwrap()).unwrap();
        (slot, number(&row[..8]), number(&row[8..]))
    });
    Counts {
        offered: all[0],
        dropped: all[1],
        missed: all[2],
        stamped: all[3],
        slots: slots.filter(|slot| slot.1 > 0).collect(),
    }
}

fn record(main: Function, table: &Table, frame: &[u8]) -> Counts {
    let loaded = loaded(main, GroupOptions::default(), table);
    assert_eq!(loaded.run(frame).unwrap(), 0x70);
    counts(&loaded)
}

fn to(slot: usize) -> Counts {
    Counts {
        offered: 1,
        stamped: 1,
        slots: vec![(slot, 1, 1)],
        ..Counts::default()
    }
}

/// A table in which the slot of each bucket and of each rank is the offset of its byte, modulo 251.
fn numbered(ranks: u32) -> Table {
    filled(table_at_xdp(), ranks)
}

fn filled(table: Table, ranks: u32) -> Table {
    for (number, slot) in table.bytes()[..layout::RANK_COUNT].iter().enumerate() {
        slot.store(u8::try_from(number % 251).unwrap(), Relaxed);
    }
    let count = table.view::<AtomicU32>(layout::RANK_COUNT, 1);
    count.unwrap()[0].store(ranks, Relaxed);
    table
}

#[test]
#[ignore = "needs root: eBPF"]
fn one_member_gets_the_packet() {
    let (table, of_sockets) = (numbered(5), filled(table(), 5));
    for (frame, main) in [
        (udp4(), by_flow()),
        (udp6(), flow_mode()),
        (arp(), flow_mode()),
        (tunnels().swap_remove(9).1, flow_mode()),
    ] {
        let object = by_table(&program(main.clone()), GroupOptions::default()).unwrap();
        let slot = load_with(&object, &of_sockets).unwrap();
        let slot = slot.run(&frame).unwrap();
        let slot = usize::try_from(slot).unwrap();
        assert_eq!(record(main, &table, &frame), to(slot));
    }
    let member = |number| Function::Steer(Steer::To(number));
    for number in [0, 4, 8] {
        let slot = (layout::RANKS + number as usize % 5) % 251;
        assert_eq!(record(member(number), &table, &arp()), to(slot));
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn what_is_dropped_is_counted_and_has_no_stamp() {
    let table = numbered(5);
    let dropped = Counts {
        offered: 1,
        dropped: 1,
        ..Counts::default()
    };
    assert_eq!(record(by_flow(), &table, &arp()), dropped);
    assert_eq!(record(Function::Drop, &table, &udp4()), dropped);
}

#[test]
#[ignore = "needs root: eBPF"]
fn flows_stay_at_xdp_too() {
    let table = numbered(5);
    // The member in each slot has the slot's number as its sticky id.
    for words in [layout::STICKY_IDS, layout::HOLDERS] {
        let words = table.view::<AtomicU64>(words, layout::SLOTS).unwrap();
        (0..)
            .zip(words)
            .for_each(|(slot, word)| word.store(0x100 + slot, Relaxed));
    }
    let loaded = loaded(by_flow(), GroupOptions::sticky(1024), &table);
    loaded.run(&udp4()).unwrap();
    let first = counts(&loaded).slots[0].0;
    table.bytes()[..layout::BUCKETS]
        .iter()
        .for_each(|slot| slot.store(200, Relaxed));
    loaded.run(&udp4()).unwrap();
    assert_eq!(counts(&loaded).slots, [(first, 2, 2)]);
    // For a new flow, the bucket selects the member.
    loaded.run(&tcp4()).unwrap();
    assert_eq!(counts(&loaded).slots.len(), 1);
    loaded.run(&udp6()).unwrap();
    assert_eq!(counts(&loaded).slots[1].0, 200);
}

#[test]
#[ignore = "needs root: eBPF"]
fn long_and_deep_programs_load() {
    let table = table_at_xdp();
    let steers = super::limits::steers();
    for main in [Function::First(steers), inner(flow_mode())] {
        loaded(main, GroupOptions::sticky(65_536), &table);
    }
    let deep = (0..5).fold(by_flow(), |main, _| Function::Inverse(Box::new(main)));
    loaded(
        Function::Sequence(vec![deep, by_flow()]),
        GroupOptions::default(),
        &table,
    );
}
