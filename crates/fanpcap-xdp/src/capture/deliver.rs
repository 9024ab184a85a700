//! Delivers a packet to a slot: runs the slot's filter, writes a record, and wakes the reader.

use super::copy::{copy, copy_by_helper};
use super::sent;
use super::{Capture, FILTERS, RINGS, ROWS, Side, Variant, look_up};
use crate::layout::record::COPY_BIT;
use crate::layout::{LONGEST, RECEIVED_LONGEST, ledger, record, row};
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use fanpcap_steer::ebpf::IS_COPY;

/// The parameters of the emitted code: the capture, and the function that runs a slot's filter.
pub(super) struct Delivering {
    pub(super) capture: Capture,
    pub(super) filter: Option<Label>,
    /// The label at which the code continues after the delivery. `None` if the code is a BPF
    /// function, which returns after the delivery.
    pub(super) done: Option<Label>,
}

/// The labels to which the code jumps if it writes no record.
struct Ends {
    missed: Label,
    unwanted: Label,
    dropped: Label,
}

/// Sizes of records without their header. The verifier requires a constant size in each
/// reservation.
const CLASSES: [i32; 10] = [64, 96, 128, 256, 512, 1024, 1536, 2048, 4096, 9216];
/// Sizes of records for longer packets. A packet that is too long for the last size is cut to that
/// size.
const RECEIVED_CLASSES: [i32; 1] = [RECEIVED_LONGEST];
const SENT_CLASSES: [i32; 3] = [65_536, 131_072, LONGEST];

/// Offsets on the stack: the slot's key in the maps, the frame's length, the stamp, the number of
/// the filter that has run, the lane's key, and the record's flags.
const PLACE: i16 = -4;
const LEN: i16 = -8;
const STAMP: i16 = -16;
const RAN: i16 = -20;
const LANE: i16 = -24;
const FLAGS: i16 = -28;

impl Delivering {
    /// Emits the code. Registers: r6 is the context, r7 the row of the slot and lane (see [`row`]),
    /// r8 the number of bytes to capture. r9 is the ring buffer, later the record.
    pub(super) fn emit(&self, asm: &mut Assembler) {
        let ends = Ends {
            missed: asm.label(),
            unwanted: asm.label(),
            dropped: asm.label(),
        };
        self.find(asm, &ends);
        if let Some(filter) = self.filter {
            self.run(asm, filter, &ends);
        }
        reserve(asm, self.capture.side, &ends);
        self.write(asm);
        match (self.capture.side, self.capture.variant) {
            (Side::Sent, _) => sent::copy(asm, ends.dropped),
            (Side::Received, Variant::Full) => copy(asm, ends.dropped),
            (Side::Received, _) => copy_by_helper(asm, ends.dropped),
        }
        submit(asm);
        self.leave(asm);
        self.end(asm, ends);
    }

    /// Finds the row and the ring buffer of the slot and the packet's lane, and the number of bytes
    /// to capture.
    fn find(&self, asm: &mut Assembler, ends: &Ends) {
        asm.set(R6, R1);
        if self.may_copy() {
            asm.set(
                R1,
                (R2 & IS_COPY) >> (IS_COPY.trailing_zeros() as i32 - COPY_BIT),
            );
            asm.store(Width::Word, R10, FLAGS, R1);
        }
        asm.set(R2, (R2 & 255) << self.shift());
        self.capture.lane(asm, R1);
        asm.alu(Op::Or, R2, R1);
        asm.store(Width::Word, R10, PLACE, R2);
        asm.store(Width::Double, R10, STAMP, R3);
        look_up(asm, ROWS, PLACE);
        asm.jump_if(R0.is(0), ends.missed);
        asm.set(R7, R0);
        if self.capture.side == Side::Sent {
            sent::refuse_own(asm, ends.unwanted);
        }
        look_up(asm, RINGS, PLACE);
        let no_ring = match self.capture.side {
            Side::Received => ends.missed,
            // A member without a ring for sent packets does not want sent packets.
            Side::Sent => ends.unwanted,
        };
        asm.jump_if(R0.is(0), no_ring);
        asm.set(R9, R0);
        match self.capture.side {
            Side::Received => asm.call(XDP_GET_BUFF_LEN, (R6,)),
            Side::Sent => sent::length(asm),
        }
        asm.store(Width::Word, R10, LEN, R0);
        asm.load(Width::Word, R8, R7, row::SNAPLEN);
        asm.jump_if(R8.is(0), ends.missed);
        asm.when(R8.above(R0), |asm| asm.set(R8, R0));
    }

    /// Whether the same packet may also be delivered to other members.
    fn may_copy(&self) -> bool {
        self.done.is_none()
    }

    fn shift(&self) -> i32 {
        self.capture.lanes.stride().trailing_zeros() as i32
    }

    /// If the slot has a filter, runs it. Stores the filter's number on the stack, or 0 if no
    /// filter has run.
    fn run(&self, asm: &mut Assembler, filter: Label, ends: &Ends) {
        let done = asm.label();
        asm.load(Width::Word, R1, R7, row::FILTER);
        asm.store(Width::Word, R10, RAN, R1);
        asm.jump_if(R1.is(0), done);
        asm.set(R1, R6);
        asm.load(Width::Word, R2, R10, PLACE);
        asm.alu(Op::Right, R2, self.shift());
        asm.call_function(filter, (R1, R2, 0));
        asm.unless(R0.is(NOT_RUN), |asm| {
            asm.alu32(Op::Move, R0, R0);
            asm.jump_if(R0.is(0), ends.unwanted);
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

    /// Counts a packet for which the code wrote no record.
    fn end(&self, asm: &mut Assembler, ends: Ends) {
        for (end, counter) in [(ends.dropped, row::DROPPED), (ends.unwanted, row::UNWANTED)] {
            asm.bind(end);
            asm.set(R1, 1);
            asm.atomic_add(R7, counter, R1);
            self.leave(asm);
        }
        asm.bind(ends.missed);
        self.capture.count(asm, LANE, ledger::NO_MEMBER);
        self.leave(asm);
    }

    fn leave(&self, asm: &mut Assembler) {
        match self.done {
            Some(done) => asm.jump(done),
            None => asm.exit_with(0),
        }
    }
}

/// Reserves a record of the smallest size that has room for r8 bytes.
fn reserve(asm: &mut Assembler, side: Side, ends: &Ends) {
    let reserve = asm.label();
    // R8 is at least 1 here, because a snaplen of 0 and a filter's result of 0 have ended the
    // delivery before. This comparison proves it to the verifier. The code compares r8 with 1, not
    // with 0: before Linux 6.8, the verifier learns no bound from a comparison with 0.
    asm.jump_if(R8.below(1), ends.dropped);
    let long: &[i32] = match side {
        Side::Received => &RECEIVED_CLASSES,
        Side::Sent => &SENT_CLASSES,
    };
    for &class in CLASSES.iter().chain(long) {
        asm.set(R2, i32::from(record::DATA) + class);
        asm.jump_if(R8.at_most(class), reserve);
    }
    asm.set(R8, long[long.len() - 1]);
    asm.bind(reserve);
    asm.call(RINGBUF_RESERVE, (R9, R2, 0));
    asm.jump_if(R0.is(0), ends.dropped);
    asm.set(R9, R0);
}

/// Commits the record, and wakes the reader if the reader waits for this record.
///
/// The reader writes `WAKE_AT`, executes a full barrier, and reads `PRODUCED`. The BPF program adds
/// to `PRODUCED`, which is also a full barrier, and then reads `WAKE_AT`. So either the reader sees
/// the record, or the BPF program sees for which record the reader waits. Each value of `PRODUCED`
/// belongs to one packet. So exactly one packet of a lane wakes the reader.
fn submit(asm: &mut Assembler) {
    let submit = asm.label();
    asm.set(R1, 1);
    asm.fetch_add(R7, row::PRODUCED, R1);
    asm.alu(Op::Add, R1, 1);
    asm.load(Width::Double, R3, R7, row::WAKE_AT);
    asm.set(R2, RB_NO_WAKEUP);
    asm.jump_if(R1.is_not(R3), submit);
    asm.set(R2, RB_FORCE_WAKEUP);
    asm.bind(submit);
    asm.call(RINGBUF_SUBMIT, (R9,));
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
