//! Finds the packet's bucket and claim, counts the packet, and passes, ships or drops it.

use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;

use super::Program;
use super::code::{MAP_CONTROL, MAP_COUNTS, MAP_ENDS, end, offset, reach, shift};
use crate::control::{ACTIVE, GENERATION};
use crate::keys::{FLOW_FACTOR, FLOW_SHIFT};
use crate::layout::{control, counts};
use crate::record::MARK;
use crate::{Claim, Control, Key};
use fanpcap_buckets::layout::BUCKETS;
use fanpcap_ring::pool::PoolShape;
use fanpcap_ring::pool::layout::record;
use fanpcap_ring::pool::program::{self, PLACE, ProgramWriter, SHORT, SLOT};

/// Positions on the stack, beside those of [`program`]: a frame's length, the control word, and the
/// bucket with its claim.
const LEN: i16 = -8;
const WORD: i16 = -16;
const FLAGS: i16 = -20;

/// The position of the claim in r8, above the bucket.
const CLAIM_SHIFT: i32 = 12;
const _: () = assert!(BUCKETS == 1 << CLAIM_SHIFT);
const _: () = assert!(Claim::Elsewhere as i32 == 0 && Claim::Mine as i32 == XDP_PASS - XDP_DROP);

impl Program {
    /// Turns the key in r8 into a bucket.
    pub(super) fn bucket(&self, asm: &mut Assembler) {
        if self.selection.key == Key::Flow {
            asm.set32(
                R8,
                ((R8 ^ (self.selection.initial as i32)) * (FLOW_FACTOR as i32))
                    >> (FLOW_SHIFT as i32),
            );
        } else {
            asm.alu32(Op::And, R8, offset(BUCKETS - 1));
        }
    }

    /// Counts the packet for the bucket in r8. Puts the control word into r9, the claim into r3.
    pub(super) fn claim(&self, asm: &mut Assembler) {
        asm.value(R1, MAP_CONTROL, offset(control::WORD));
        asm.load(Width::Double, R9, R1, 0);
        asm.unless(R9.has_any(i32::from(ACTIVE)), |asm| end(asm, XDP_PASS));
        // An addition in the place of OR: before Linux 6.10, the verifier learns no bounds from OR
        // with a register.
        asm.set(R2, ((R9 & i32::from(GENERATION)) << CLAIM_SHIFT) + R8);
        asm.value(R1, MAP_CONTROL, offset(control::TABLES));
        asm.alu(Op::Add, R1, R2);
        asm.load(Width::Byte, R3, R1, 0);
        self.seen(asm);
    }

    /// Drops other nodes' packets. For this node's packets, puts the claim above the bucket in r8.
    pub(super) fn own(&self, asm: &mut Assembler) {
        asm.when(R3.is(0), |asm| end(asm, XDP_DROP));
        asm.alu(Op::Left, R3, CLAIM_SHIFT);
        asm.alu(Op::Or, R8, R3);
    }

    /// Drops other nodes' packets, and packets that do not pass the filter. The claim stays in r3.
    pub(super) fn pass_filter(&self, asm: &mut Assembler, filter: Label) {
        asm.when(R3.is(0), |asm| end(asm, XDP_DROP));
        asm.set(R7, R3);
        asm.call_function(filter, (R6, 0, 0));
        asm.when(R0.is(0), |asm| {
            self.count(asm, counts::FILTERED);
            end(asm, XDP_DROP);
        });
        asm.set(R3, R7);
    }

    /// Passes this node's packets on, and drops other packets. Outside a union, the verdict is the
    /// claim plus 1. This needs no conditional jump, which a CPU could not predict.
    pub(super) fn pass_own(&self, asm: &mut Assembler) {
        asm.when(R3.at_most(Claim::Mine as i32), |asm| {
            asm.exit_with(R3 + XDP_DROP)
        });
        end(asm, XDP_PASS);
    }

    /// Counts the packet as seen, for the table in use. r2 is the index of the packet's bucket in
    /// the counters of both tables. Clobbers r1, r2 and r7.
    fn seen(&self, asm: &mut Assembler) {
        let [shared, done] = asm.labels();
        self.lane(asm, R1, shared);
        asm.value(R7, MAP_COUNTS, 0);
        asm.alu(Op::Left, R1, shift(counts::SHORT_LANE));
        asm.alu(Op::Add, R7, R1);
        asm.alu(Op::Left, R2, shift(size_of::<u16>()));
        asm.alu(Op::Add, R7, R2);
        asm.load(Width::Half, R1, R7, 0);
        asm.alu(Op::Add, R1, 1);
        asm.store(Width::Half, R7, 0, R1);
        asm.jump_if(R1.has_any((1 << counts::HALF) - 1), done);
        self.lane(asm, R1, done);
        asm.alu(Op::Right, R2, shift(size_of::<u16>()));
        self.long(asm);
        asm.set(R1, 1);
        // `BPF_FETCH` orders this addition after the store above.
        asm.fetch_add(R7, 0, R1);
        asm.jump(done);
        asm.bind(shared);
        asm.set(R1, offset(self.lanes.own()));
        self.long(asm);
        asm.set(R1, 1);
        asm.atomic_add(R7, 0, R1);
        asm.bind(done);
    }

    /// Sets r7 to the address of a 64-bit counter: lane r1, place r2. Clobbers r1 and r2.
    fn long(&self, asm: &mut Assembler) {
        asm.value(R7, MAP_COUNTS, offset(counts::long(self.lanes)));
        asm.alu(Op::Left, R1, shift(counts::LANE));
        asm.alu(Op::Add, R7, R1);
        asm.alu(Op::Left, R2, shift(size_of::<u64>()));
        asm.alu(Op::Add, R7, R2);
    }

    /// Counts the packet of the bucket at [`FLAGS`] as lost, and ends the BPF program.
    fn lose(&self, asm: &mut Assembler) {
        asm.load(Width::Word, R8, R10, FLAGS);
        asm.set(R8, (R8 & offset(BUCKETS - 1)) << shift(size_of::<u64>()));
        asm.value(R1, MAP_COUNTS, offset(counts::lost(self.lanes)));
        asm.alu(Op::Add, R1, R8);
        asm.set(R2, 1);
        asm.atomic_add(R1, 0, R2);
        self.count(asm, counts::LOST);
        end(asm, XDP_DROP);
    }

    /// Writes the packet's first bytes into the CPU's lane of the node's pool.
    pub(super) fn ship(&self, asm: &mut Assembler, bytes: u16, shape: PoolShape) {
        let pools = MAP_ENDS;
        let pool = ProgramWriter { shape, pools };
        let [lost, take_block] = asm.labels();
        asm.store(Width::Double, R10, WORD, R9);
        asm.store(Width::Word, R10, FLAGS, R8);
        asm.call(XDP_GET_BUFF_LEN, (R6,));
        asm.store(Width::Word, R10, LEN, R0);
        asm.set(R8, R0);
        asm.when(R8.above(i32::from(bytes)), |asm| {
            asm.set(R8, i32::from(bytes))
        });
        asm.store(Width::Word, R10, SLOT, 0);
        asm.call(GET_SMP_PROCESSOR_ID, ());
        asm.set(R1, R0 & (shape.lanes() as i32 - 1));
        asm.store(Width::Word, R10, PLACE, R1);
        pool.find_lane(asm, lost);
        pool.make_room(asm, &[SHORT], take_block, lost);
        pool.block(asm, lost);
        pool.address(asm, SHORT, lost);
        write(asm);
        copy(asm, bytes);
        program::publish(asm);
        end(asm, XDP_DROP);
        asm.bind(lost);
        self.lose(asm);
        asm.bind(take_block);
        asm.note("take a block");
        pool.take_block(asm);
    }
}

/// Passes the packet on to the next BPF program.
pub(super) fn to_next(asm: &mut Assembler) {
    asm.call(TAIL_CALL, (R6, map(MAP_ENDS), 0));
    end(asm, XDP_PASS);
}

/// Writes the head of the record in r9, with r8 captured bytes.
fn write(asm: &mut Assembler) {
    asm.call(KTIME_GET_NS, ());
    asm.store(Width::Double, R9, record::STAMP, R0);
    asm.store(Width::Word, R9, record::CAPLEN, R8);
    asm.load(Width::Word, R1, R10, LEN);
    asm.store(Width::Word, R9, record::LEN, R1);
    asm.load(Width::Word, R1, R6, xdp::RX_QUEUE_INDEX);
    asm.store(Width::Half, R9, record::QUEUE, R1);
    asm.load(Width::Word, R1, R10, FLAGS);
    asm.alu(Op::Left, R1, 1);
    asm.store(Width::Half, R9, record::FLAGS, R1);
    asm.load(Width::Double, R1, R10, WORD);
    asm.alu(Op::Right, R1, Control::MARK_SHIFT);
    asm.store(Width::Word, R9, MARK, R1);
}

/// Copies the frame's first r8 bytes into the record: directly if `bytes` bytes can be read in
/// place, else by the kernel's helper. Shorter frames and frames in several pieces need the helper.
/// The verifier requires a check that r8 is at least 1.
fn copy(asm: &mut Assembler, bytes: u16) {
    let [helper, done] = asm.labels();
    asm.load(Width::Word, R1, R6, xdp::DATA);
    asm.load(Width::Word, R2, R6, xdp::DATA_END);
    reach(asm, bytes.into(), R4, helper);
    for at in (0..).step_by(8).take(usize::from(bytes / 8)) {
        asm.load(Width::Double, R4, R1, at);
        asm.store(Width::Double, R9, record::DATA + at, R4);
    }
    asm.jump(done);
    asm.bind(helper);
    asm.jump_if(R8.below(1), done);
    asm.call(XDP_LOAD_BYTES, (R6, 0, R9 + i32::from(record::DATA), R8));
    asm.bind(done);
}
