//! Views on the stack: spilled, and loaded again without the verifier's knowledge of their value.

use super::assembler::{If, Op, R1, R2, R6, R7, R10, Width};
use super::emitter::Emitter;
use super::stack::{CARRIED, OUTER};
use super::view::View;

impl Emitter<'_> {
    /// Spills r7 to the stack and erases the verifier's knowledge of its value, so that all paths
    /// merge into one state here. XORs r7 twice with a value that the verifier does not know; once
    /// would let it remember a zero. Loading r7 again in two halves erases the rest.
    pub(super) fn forget(&mut self, slot: i16) {
        // A number in both kinds of context: the protocol or the queue.
        self.asm.load(Width::Word, R1, R6, 16);
        self.asm.set(R2, R1);
        self.asm.alu(Op::Left, R2, 32);
        self.asm.alu(Op::Or, R1, R2);
        self.asm.alu(Op::Xor, R7, R1);
        self.asm.alu(Op::Xor, R7, R1);
        self.asm.store(Width::Word, R10, slot, R7);
        self.asm.alu(Op::Right, R7, 32);
        self.asm.store(Width::Word, R10, slot + 8, R7);
        self.recall(slot);
    }

    /// Loads a spilled view into r7. r1 is lost.
    pub(super) fn recall(&mut self, slot: i16) {
        self.asm.load(Width::Word, R1, R10, slot);
        self.asm.load(Width::Word, R7, R10, slot + 8);
        self.asm.alu(Op::Left, R7, 32);
        self.asm.alu(Op::Or, R7, R1);
    }

    /// Loads the view of the packet that the code is about into r7. The verifier knows nothing of
    /// its value. r1 is lost.
    pub(super) fn recall_view(&mut self) {
        if self.view != View::Packed || !self.walks {
            return;
        }
        if self.nested && self.asks_inside {
            let carried = self.asm.label();
            self.recall(CARRIED);
            self.asm.jump_if(If::NotEqual, R7, 0, carried);
            self.recall(OUTER);
            self.asm.bind(carried);
        } else {
            self.recall(OUTER);
        }
    }

    /// The view of the carried packet to r1, or 0. r2 is lost.
    pub(super) fn recall_carried(&mut self) {
        self.asm.load(Width::Word, R2, R10, CARRIED);
        self.asm.load(Width::Word, R1, R10, CARRIED + 8);
        self.asm.alu(Op::Left, R1, 32);
        self.asm.alu(Op::Or, R1, R2);
    }
}
