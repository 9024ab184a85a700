//! Emits, in a BPF program that delivers, the decisions that are not for one member (copies,
//! broadcasts, two members), and the choices of class, host and mark.

use super::choices::{
    BROADCAST, CLASS_MASK, CLASS_SHIFT, COPY, DOUBLE, DROP, HOST_BIT, HOST_MASK, KIND_SHIFT,
    MARKED, SECOND_SHIFT,
};
use super::emitter::Emitter;
use super::stack::{CHOICE, MARK};
use crate::ir::Field;
use fanpcap_bpf::assembler::*;
use fanpcap_buckets::layout::BUCKETS;

/// Mask of the bucket in a hash.
const BUCKET_MASK: i32 = 0xfff;
const _: () = assert!(BUCKET_MASK as usize == BUCKETS - 1);

impl Emitter<'_> {
    /// Sets the first decision: to copy the packet to every member, if the tree can end with this
    /// decision.
    pub(super) fn start_decision(&mut self) {
        let copy = if self.choices.copies { COPY } else { 0 };
        self.kind(copy);
    }

    fn kind(&mut self, kind: i32) {
        self.asm
            .number(R8, u64::from(kind.unsigned_abs()) << KIND_SHIFT);
    }

    /// Returns the decision in r8. Binds `drop`, where the code returns the decision to drop the
    /// packet.
    pub(super) fn return_decision(&mut self, drop: Label) {
        let done = self.asm.label();
        self.asm.jump(done);
        self.bind_and(drop, |this| {
            this.kind(DROP);
        });
        self.asm.bind(done);
        if self.choices.classes || self.choices.host {
            self.asm.load(Width::Word, R1, R10, CHOICE);
            self.asm.set(
                R1,
                (R1 & (CLASS_MASK | (HOST_MASK << HOST_BIT))) << CLASS_SHIFT,
            );
            self.asm.alu(Op::Or, R8, R1);
        }
        match self.decided {
            Some(decided) => self.asm.jump(decided),
            None => self.asm.exit_with(R8),
        }
    }

    pub(super) fn broadcast(&mut self) {
        self.kind(BROADCAST);
    }

    pub(super) fn classify(&mut self, class: u8) {
        self.choose(CLASS_MASK, i32::from(class));
    }

    pub(super) fn host(&mut self, only: bool, drop: Label) {
        self.choose(HOST_MASK << HOST_BIT, (1 + i32::from(only)) << HOST_BIT);
        if only {
            self.asm.jump(drop);
        }
    }

    /// Replaces the bits of `mask` in the choices on the stack.
    fn choose(&mut self, mask: i32, bits: i32) {
        self.asm.load(Width::Word, R1, R10, CHOICE);
        self.asm.set(R1, (R1 & !mask) | bits);
        self.asm.store(Width::Word, R10, CHOICE, R1);
    }

    pub(super) fn mark(&mut self, mark: u32) {
        if self.choices.marks {
            self.choose(MARKED, MARKED);
            self.asm.number(R1, u64::from(mark));
            self.asm.store(Width::Word, R10, MARK, R1);
        }
    }

    /// Loads into r1 the mark that the steering program has set, or else the mark that the packet
    /// had. Jumps to `none` if there is neither.
    pub(super) fn load_mark(&mut self, none: Label) {
        let done = self.asm.label();
        if self.choices.marks {
            self.asm.load(Width::Word, R1, R10, CHOICE);
            self.asm.alu(Op::And, R1, MARKED);
            self.asm.unless(R1.is(0), |asm| {
                asm.load(Width::Word, R1, R10, MARK);
                asm.jump(done);
            });
        }
        self.mark_beside(none);
        self.asm.bind(done);
    }

    pub(super) fn double_link(&mut self, drop: Label) {
        self.links(drop);
        self.ends();
        self.double();
    }

    pub(super) fn double_ip(&mut self, drop: Label) {
        self.require_ip(drop);
        self.asm.set(R9, 0);
        self.ends_of_addresses(drop);
        self.double();
    }

    pub(super) fn double_field(&mut self, one: Field, other: Field, drop: Label) {
        self.fields(one, other, drop);
        self.ends();
        self.double();
    }

    /// Sets the decision that gives the packet to two members: the owners of the buckets that the
    /// two ends in r1 and r2 select. An end is the hash of an address or a field (`hash.rs`).
    fn double(&mut self) {
        self.finish(R1);
        self.asm.set(R3, R0);
        self.finish(R2);
        self.kind(DOUBLE);
        self.asm.alu(Op::And, R3, BUCKET_MASK);
        self.asm.alu(Op::Or, R8, R3);
        self.asm.set(R0, (R0 & BUCKET_MASK) << SECOND_SHIFT);
        self.asm.alu(Op::Or, R8, R0);
    }
}
