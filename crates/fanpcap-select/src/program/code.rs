//! Code that all parts of the BPF program use: its maps, its lanes and its causes.

use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;

use super::Program;
use crate::control::ACTIVE;
use crate::layout::{control, counts};

/// The indices of the maps.
pub(super) const MAP_CONTROL: usize = 0;
pub(super) const MAP_COUNTS: usize = 1;
/// The index of [`crate::layout::POOL_MAP`] in capture mode, else of [`crate::layout::NEXT_MAP`].
pub(super) const MAP_ENDS: usize = 2;

impl Program {
    /// Loads the lane of the packet's queue. Jumps to `shared` if the queue has no lane of its own.
    pub(super) fn lane(&self, asm: &mut Assembler, target: Register, shared: Label) {
        asm.load(Width::Word, target, R6, xdp::RX_QUEUE_INDEX);
        let queues = offset(self.lanes.queues());
        asm.jump_if(target.at_least(queues), shared);
        if self.lanes.first() > 0 {
            asm.alu(Op::Add, target, offset(self.lanes.first()));
        }
    }

    /// Adds 1 to the counter of a cause. Clobbers r1 and r2.
    pub(super) fn count(&self, asm: &mut Assembler, cause: usize) {
        let [shared, lane] = asm.labels();
        self.lane(asm, R2, shared);
        asm.jump(lane);
        asm.bind(shared);
        asm.set(R2, offset(self.lanes.own()));
        asm.bind(lane);
        asm.alu(Op::Left, R2, shift(counts::CAUSES));
        asm.value(R1, MAP_COUNTS, offset(counts::causes(self.lanes) + cause));
        asm.alu(Op::Add, R1, R2);
        asm.set(R2, 1);
        asm.atomic_add(R1, 0, R2);
    }

    /// If no table is in use, lets the packet pass and ends the BPF program. Clobbers r1.
    pub(super) fn require_table(&self, asm: &mut Assembler) {
        asm.value(R1, MAP_CONTROL, offset(control::WORD));
        asm.load(Width::Double, R1, R1, 0);
        asm.unless(R1.has_any(i32::from(ACTIVE)), |asm| end(asm, XDP_PASS));
    }
}

/// Ends the BPF program with a verdict.
pub(super) fn end(asm: &mut Assembler, verdict: i32) {
    asm.exit_with(verdict);
}

/// Jumps to `beyond` unless `len` bytes can be read in place from r1 on. r2 is the frame's end.
pub(super) fn reach(asm: &mut Assembler, len: usize, scratch: Register, beyond: Label) {
    asm.set(scratch, R1 + offset(len));
    asm.jump_if(scratch.above(R2), beyond);
}

/// Converts a constant to the immediate operand of an instruction.
pub(super) const fn offset(constant: usize) -> i32 {
    assert!(constant < 1 << 30);
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    let short = constant as i32;
    short
}

/// The shift that multiplies by this power of two.
pub(super) fn shift(power: usize) -> i32 {
    offset(power).trailing_zeros() as i32
}
