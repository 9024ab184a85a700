//! A `Delivery` for tests. Its BPF program delivers no packets: each part of the delivery records
//! in a map that it has run. The test reads the map.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fanpcap_bpf::MapSpec;
use fanpcap_bpf::assembler::{
    Assembler, Label, Op, R0, R1, R2, R3, R6, R8, R9, R10, Width, map, stack,
};
use fanpcap_linux::bpf::Table;
use fanpcap_steer::ebpf::{Apart, Delivery};

/// Generates the code of the delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recording {
    /// Whether the packets are packets that the host sends.
    pub(crate) sent: bool,
}

/// Name of the map with the records. It has an entry for each slot, and then the entries of
/// [`Row`].
pub(crate) const RECORD_MAP: &str = "record";
const SLOTS: usize = 256;
const ROWS: usize = SLOTS + 5;

/// The map's entries after the entries of the slots.
#[derive(Clone, Copy)]
enum Row {
    Offered,
    Dropped,
    Missed,
    Stamped,
    /// Counts deliveries whose stamp is not the stamp of the packet.
    Wrong,
}

/// The calls of the delivery for one packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Number of deliveries to each slot.
    pub(crate) slots: BTreeMap<u8, u64>,
    /// The number of times that the packet was counted as dropped.
    pub(crate) dropped: u64,
    /// The number of times that the packet was counted as a packet without members.
    pub(crate) missed: u64,
    /// The BPF program's result, which says whether the host gets the packet.
    pub(crate) host: u32,
    /// Whether `arrive` did not run exactly once for the packet, or the stamp was wrong.
    pub(crate) is_wrong: bool,
}

/// The shared map of a [`Recording`].
pub(crate) struct Recorder(Table);

impl Recorder {
    pub(crate) fn new() -> Self {
        Self(Table::create("record", u32::try_from(ROWS * 8).unwrap()).unwrap())
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Returns and clears the record of the last packet. `host` is the result of the BPF program.
    pub(crate) fn take(&self, host: u32) -> Record {
        let rows = self.0.view::<AtomicU64>(0, ROWS).unwrap();
        let (slots, others) = rows.split_at(SLOTS);
        let of = |row: Row| others[row as usize].swap(0, Relaxed);
        // Only exchange counts that are not 0. To exchange all counts would take longer than the
        // rest of a trial.
        let counted = slots.iter().enumerate();
        let counted = counted.filter(|(_, count)| count.load(Relaxed) > 0);
        let counted = counted.map(|(slot, count)| (slot, count.swap(0, Relaxed)));
        let slots: BTreeMap<u8, u64> = counted
            .map(|(slot, count)| (u8::try_from(slot).unwrap(), count))
            .collect();
        let delivered: u64 = slots.values().sum();
        Record {
            slots,
            dropped: of(Row::Dropped),
            missed: of(Row::Missed),
            host,
            is_wrong: [of(Row::Offered), of(Row::Wrong)] != [1, 0]
                || of(Row::Stamped) != u64::from(delivered > 0),
        }
    }
}

/// The stamp of each packet.
const STAMP: i32 = 0x5eed;
/// The value that `arrive` stores for the other parts.
const KEPT: i32 = 0x1234;
const KEY: i16 = -36;
const MAP_LOOKUP: i32 = 1;

/// Adds 1 to the map's entry whose index is on the stack.
fn count(asm: &mut Assembler, key: i16) {
    let none = asm.label();
    asm.call(MAP_LOOKUP, (map(0), stack(key)));
    asm.jump_if(R0.is(0), none);
    asm.set(R1, 1);
    asm.atomic_add(R0, 0, R1);
    asm.bind(none);
}

fn count_row(asm: &mut Assembler, row: Row) {
    let index = i32::try_from(SLOTS).unwrap() + row as i32;
    asm.store(Width::Word, R10, KEY, index);
    count(asm, KEY);
}

impl Delivery for Recording {
    fn maps(&self) -> Vec<MapSpec> {
        vec![MapSpec::given(RECORD_MAP, u32::try_from(ROWS * 8).unwrap())]
    }

    fn is_of_sent(&self) -> bool {
        self.sent
    }

    fn arrive(&self, asm: &mut Assembler) {
        count_row(asm, Row::Offered);
        asm.set(R9, KEPT);
    }

    fn stamp(&self, asm: &mut Assembler) {
        count_row(asm, Row::Stamped);
        asm.set(R0, STAMP);
    }

    fn deliver(&self, asm: &mut Assembler, _: Apart, done: Option<Label>) {
        let right = asm.label();
        asm.set(R6, R1);
        asm.alu(Op::And, R2, 255);
        asm.jump_if(R3.is(STAMP), right);
        asm.set(R2, i32::try_from(SLOTS).unwrap() + Row::Wrong as i32);
        asm.bind(right);
        asm.store(Width::Word, R10, -4, R2);
        count(asm, -4);
        // The verifier accepts this load only if r6 is the context. So the test finds back ends
        // that change r6.
        asm.load(Width::Word, R0, R6, 0);
        match done {
            Some(done) => asm.jump(done),
            None => asm.exit(),
        }
    }

    fn filter(&self, asm: &mut Assembler) {
        asm.exit();
    }

    fn drop(&self, asm: &mut Assembler) {
        count_row(asm, Row::Dropped);
    }

    fn miss(&self, asm: &mut Assembler) {
        count_row(asm, Row::Missed);
    }

    fn leave(&self, asm: &mut Assembler) {
        let kept = asm.label();
        asm.load(Width::Word, R1, R6, 0);
        asm.set(R0, R8);
        asm.jump_if(R9.is(KEPT), kept);
        asm.set(R0, -1);
        asm.bind(kept);
        asm.exit();
    }
}
