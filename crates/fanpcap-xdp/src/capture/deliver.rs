//! Delivers a packet to a slot: runs the slot's filter, writes a record, and wakes the reader.

use super::copy::{by_helper, copy};
use super::sent;
use super::{BELLS, Capture, FILTERS, FIRST_BELL, ROWS, Side, Variant, look_up};
use crate::layout::{ledger, row};
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use fanpcap_ring::pool::NEVER;
use fanpcap_ring::pool::layout::record;
use fanpcap_ring::pool::program::{self, KEY, PLACE, SHORT, SLOT};
use fanpcap_steer::ebpf::IS_COPY;

/// The parameters of the emitted code: the capture, and the BPF functions that it calls.
pub(super) struct Delivering {
    pub(super) capture: Capture,
    pub(super) filter: Option<Label>,
    /// The BPF function of [`program::ProgramWriter::take_block`].
    pub(super) take_block: Label,
    /// The label at which the code continues after the delivery. `None` if the code is a BPF
    /// function, which returns after the delivery.
    pub(super) done: Option<Label>,
    /// The labels to which the code jumps if it writes no record.
    pub(super) missed: Label,
    pub(super) unwanted: Label,
    pub(super) dropped: Label,
}

/// Offsets on the stack: the frame's length, its stamp, the number of the filter that has run, and
/// the record's flags. [`program`] has three further places. No number of 32 bits that
/// shares 8 bytes with another, or is stored twice, begins at a multiple of 8: such a number counts
/// as a spilled register, and without `CAP_PERFMON` Linux 6.1 refuses the other store.
const LEN: i16 = -8;
const STAMP: i16 = -16;
const RAN: i16 = -20;
const FLAGS: i16 = -44;

impl Delivering {
    /// Emits the code. Registers: r6 is the context, r7 the row of the slot and lane (see [`row`]),
    /// later the lane's row, r8 the number of bytes to capture. r9 is the
    /// record.
    pub(super) fn emit(&self, asm: &mut Assembler) {
        let written = asm.label();
        self.find(asm);
        if let Some(filter) = self.filter {
            self.run(asm, filter);
        }
        asm.load(Width::Word, R1, R10, PLACE);
        asm.alu(Op::And, R1, self.capture.shape.lanes() as i32 - 1);
        let (pool, bounds) = (self.capture.writer(), self.capture.bounds());
        pool.find_lane(asm, self.missed);
        let longest = bounds.last().copied().unwrap_or(SHORT);
        asm.when(R8.above(longest), |asm| asm.set(R8, longest));
        pool.make_room(asm, &bounds, self.take_block, self.dropped);
        pool.block(asm, self.dropped);
        for most in bounds {
            let longer = asm.label();
            asm.jump_if(R8.above(most), longer);
            pool.address(asm, most, self.dropped);
            self.write(asm);
            self.copy(asm, most, self.dropped);
            asm.jump(written);
            asm.bind(longer);
        }
        // Not reached: r8 is at most the last bound.
        asm.jump(self.dropped);
        asm.bind(written);
        publish(asm);
        self.leave(asm);
        self.end(asm);
    }

    /// Copies r8 bytes, at most `most`, into the record.
    fn copy(&self, asm: &mut Assembler, most: i32, failed: Label) {
        match (self.capture.side, self.capture.variant) {
            (Side::Sent, _) => sent::copy(asm, most, failed),
            (Side::Received, Variant::Full) if most == SHORT => copy(asm, most, failed),
            (Side::Received, _) => by_helper(asm, most, failed),
        }
    }

    /// Finds the row of the slot and the packet's lane, and the number of bytes to capture.
    fn find(&self, asm: &mut Assembler) {
        asm.set(R6, R1);
        if self.may_copy() {
            let shift = IS_COPY.trailing_zeros() - record::COPY.trailing_zeros();
            asm.set(R1, (R2 & IS_COPY) >> shift as i32);
            asm.store(Width::Word, R10, FLAGS, R1);
        }
        asm.set(R8, R2 & 255);
        asm.store(Width::Word, R10, SLOT, R8);
        asm.store(Width::Double, R10, STAMP, R3);
        self.capture.lane(asm);
        let lanes = self.capture.shape.lanes();
        asm.set(R8, (R8 << lanes.trailing_zeros() as i32) | R0);
        asm.store(Width::Word, R10, PLACE, R8);
        look_up(asm, ROWS, PLACE);
        asm.jump_if(R0.is(0), self.missed);
        asm.set(R7, R0);
        match self.capture.side {
            Side::Received => asm.call(XDP_GET_BUFF_LEN, (R6,)),
            Side::Sent => {
                asm.load(Width::Word, R1, R7, row::SENT);
                asm.jump_if(R1.is(0), self.unwanted);
                sent::refuse_own(asm, self.unwanted);
                sent::length(asm);
            }
        }
        asm.store(Width::Word, R10, LEN, R0);
        asm.load(Width::Word, R8, R7, row::SNAPLEN);
        asm.jump_if(R8.is(0), self.missed);
        asm.when(R8.above(R0), |asm| asm.set(R8, R0));
    }

    /// Whether the same packet may also be delivered to other members.
    fn may_copy(&self) -> bool {
        self.done.is_none()
    }

    /// If the slot has a filter, runs it. Stores the filter's number on the stack, or 0 if no
    /// filter has run.
    fn run(&self, asm: &mut Assembler, filter: Label) {
        let done = asm.label();
        asm.load(Width::Word, R1, R7, row::FILTER);
        asm.store(Width::Word, R10, RAN, R1);
        asm.jump_if(R1.is(0), done);
        asm.set(R1, R6);
        asm.load(Width::Word, R2, R10, SLOT);
        asm.call_function(filter, (R1, R2, 0));
        asm.unless(R0.is(NOT_RUN), |asm| {
            asm.alu32(Op::Move, R0, R0);
            asm.jump_if(R0.is(0), self.unwanted);
            asm.jump_if(R8.at_most(R0), done);
            asm.set(R8, R0);
            asm.jump(done);
        });
        asm.store(Width::Word, R10, RAN, 0);
        asm.bind(done);
    }

    fn write(&self, asm: &mut Assembler) {
        asm.load(Width::Double, R1, R10, STAMP);
        asm.store(Width::Double, R9, record::STAMP, R1);
        asm.store(Width::Word, R9, record::CAPLEN, R8);
        asm.load(Width::Word, R1, R10, LEN);
        asm.store(Width::Word, R9, record::LEN, R1);
        match self.capture.side {
            Side::Received => {
                asm.load(Width::Word, R1, R6, xdp::RX_QUEUE_INDEX);
                asm.store(Width::Half, R9, record::QUEUE, R1);
                asm.set(R1, 0);
            }
            Side::Sent => sent::flags(asm),
        }
        if self.may_copy() {
            asm.load(Width::Word, R2, R10, FLAGS);
            asm.alu(Op::Or, R1, R2);
        }
        asm.store(Width::Half, R9, record::FLAGS, R1);
        if self.filter.is_some() {
            asm.load(Width::Word, R1, R10, RAN);
            asm.store(Width::Word, R9, record::FILTER, R1);
        } else {
            asm.store(Width::Word, R9, record::FILTER, 0);
        }
    }

    /// Counts a packet for which the code wrote no record. A packet without room also wakes the
    /// reader.
    fn end(&self, asm: &mut Assembler) {
        asm.bind(self.dropped);
        look_up(asm, ROWS, PLACE);
        asm.unless(R0.is(0), |asm| {
            asm.set(R1, 1);
            asm.atomic_add(R0, row::DROPPED, R1);
            wake_for_drop(asm);
        });
        self.leave(asm);
        asm.bind(self.unwanted);
        asm.set(R1, 1);
        asm.atomic_add(R7, row::UNWANTED, R1);
        self.leave(asm);
        asm.bind(self.missed);
        self.capture.count(asm, KEY, ledger::NO_MEMBER);
        self.leave(asm);
    }

    fn leave(&self, asm: &mut Assembler) {
        match self.done {
            Some(done) => asm.jump(done),
            None => asm.exit_with(0),
        }
    }
}

/// Counts the record, publishes it, and wakes the reader if the reader waits for it. In this order,
/// no reader takes a record that is not counted. A CPU's counter has one writer, so the addition
/// need not be atomic.
fn publish(asm: &mut Assembler) {
    let done = asm.label();
    look_up(asm, ROWS, PLACE);
    asm.jump_if(R0.is(0), done);
    asm.load(Width::Double, R1, R0, row::PRODUCED);
    asm.alu(Op::Add, R1, 1);
    asm.store(Width::Double, R0, row::PRODUCED, R1);
    program::publish(asm);
    wake(asm);
    asm.bind(done);
}

/// Wakes the reader if it waits for the position in r8. Expects the row of slot and lane in r0.
fn wake(asm: &mut Assembler) {
    ring(asm, R8.below(R1));
}

/// Wakes the reader if it waits, because a packet has no room. All CPUs share the bell, so a packet
/// does not ring it while the reader does not wait. Expects the row of slot and lane in r0.
fn wake_for_drop(asm: &mut Assembler) {
    const _: () = assert!(NEVER == u64::MAX);
    ring(asm, R1.is(-1));
}

/// Rings the member's bell: the reader's descriptor becomes readable. Does nothing if `sleeps` is
/// true when r1 has the row's position at which the reader is woken. Takes this position out, so
/// the reader is woken once.
fn ring(asm: &mut Assembler, sleeps: Condition) {
    let done = asm.label();
    asm.load(Width::Double, R1, R0, row::WAKE_AT);
    asm.jump_if(sleeps, done);
    asm.set(R1, -1);
    asm.exchange(R0, row::WAKE_AT, R1);
    asm.jump_if(R1.is(-1), done);
    // Any 8 bytes of the stack make the record.
    asm.load(Width::Word, R1, R10, SLOT);
    asm.when(R1.is(0), |asm| {
        let bell = map(FIRST_BELL);
        asm.call(RINGBUF_OUTPUT, (bell, stack(STAMP), 8, RB_FORCE_WAKEUP));
        asm.jump(done);
    });
    asm.call(MAP_LOOKUP, (map(BELLS), stack(SLOT)));
    asm.jump_if(R0.is(0), done);
    asm.call(RINGBUF_OUTPUT, (R0, stack(STAMP), 8, RB_FORCE_WAKEUP));
    asm.bind(done);
}

/// Emits the BPF function that runs a slot's filter. r1 is the context, r2 the slot. The function
/// returns how many bytes to keep, or [`NOT_RUN`].
pub(super) fn emit_filter(asm: &mut Assembler) {
    asm.set(R3, R2);
    asm.call(TAIL_CALL, (R1, map(FILTERS)));
    asm.exit_with(NOT_RUN);
}

/// The result of the BPF function if the kernel could not run the filter.
const NOT_RUN: i32 = -1;
