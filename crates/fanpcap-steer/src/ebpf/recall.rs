//! Stores views on the stack, and loads them again such that the verifier knows nothing of their
//! value.

use super::emitter::Emitter;
use super::stack::{CARRIED, OUTER};
use super::view::View;
use fanpcap_bpf::assembler::*;

impl Emitter<'_> {
    /// Spills r7 and erases the verifier's knowledge of its value, so that all paths merge into one
    /// state here. XORs r7 twice with a value unknown to the verifier; a single XOR would let the
    /// verifier remember a zero. Then stores r7 and loads it again in two halves, which erases the
    /// rest of the verifier's knowledge.
    pub(super) fn forget(&mut self, slot: i16) {
        self.erase(&[R7]);
        self.asm.store(Width::Word, R10, slot, R7);
        self.asm.alu(Op::Right, R7, 32);
        self.asm.store(Width::Word, R10, slot + 8, R7);
        self.recall(slot);
    }

    /// Erases the verifier's knowledge of the registers' values. What the verifier knows about
    /// single bits of a register stays known. Clobbers r1 and r2.
    pub(super) fn erase(&mut self, registers: &[Register]) {
        // Both kinds of context have a field at offset 16: the protocol in `__sk_buff`, the queue
        // in `xdp_md`.
        self.asm.load(Width::Word, R1, R6, 16);
        self.asm.set(R2, R1 << 32);
        self.asm.alu(Op::Or, R1, R2);
        for register in registers {
            self.asm.alu(Op::Xor, *register, R1);
            self.asm.alu(Op::Xor, *register, R1);
        }
    }

    /// Loads a spilled view into r7. Clobbers r1.
    pub(super) fn recall(&mut self, slot: i16) {
        self.asm.load(Width::Word, R1, R10, slot);
        self.asm.load(Width::Word, R7, R10, slot + 8);
        self.asm.set(R7, (R7 << 32) | R1);
    }

    /// Loads the view of the current packet into r7. The verifier knows nothing of its value.
    /// Clobbers r1.
    pub(super) fn recall_view(&mut self) {
        if self.view != View::Packed || !self.walks {
            return;
        }
        if self.nested && self.asks_inside {
            self.recall(CARRIED);
            self.when(R7.is(0), |this| this.recall(OUTER));
        } else {
            self.recall(OUTER);
        }
    }

    /// Loads the view of the carried packet, or 0, into r1. Clobbers r2.
    pub(super) fn recall_carried(&mut self) {
        self.asm.load(Width::Word, R2, R10, CARRIED);
        self.asm.load(Width::Word, R1, R10, CARRIED + 8);
        self.asm.set(R1, (R1 << 32) | R2);
    }
}
