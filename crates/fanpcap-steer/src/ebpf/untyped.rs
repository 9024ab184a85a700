//! Reads untyped payload: packets and frames that no type field announces, as `fanpcap_wire` does.

use super::emitter::{Emitter, Routine};
use super::stack::{OUTER, SUMMED, WALKED_SCRATCH};
use super::view::{Bytes, CHECKED, INNER, IPV4, IPV6, Origin, TRANSPORT_SHIFT};
use fanpcap_bpf::assembler::*;

impl Emitter<'_> {
    /// Continues with untyped payload, if the walk of the frame has ended at such payload. If the
    /// payload contains a frame, puts the view of this frame into r8, else 0.
    pub(super) fn untyped_of_frame(&mut self) {
        let done = self.asm.label();
        self.asm.set(R8, 0);
        self.has_untyped(done);
        self.asm.set(R9, R7);
        self.forget_untyped(R9);
        self.call_untyped();
        self.require(INNER, done);
        self.asm.set(R8, R7);
        self.asm.set(R7, R9);
        self.asm.bind(done);
    }

    /// Continues with untyped payload, if the walk of the carried packet has ended at such payload.
    /// Puts the view of the packet in the payload into r7.
    pub(super) fn untyped(&mut self) {
        let done = self.asm.label();
        self.has_untyped(done);
        self.call_untyped();
        self.asm.bind(done);
    }

    /// Jumps to `none` unless the view in r7 has the offset of untyped payload. Clobbers r1.
    fn has_untyped(&mut self, none: Label) {
        self.asm.jump_if(R7.has_any(IPV4 | IPV6), none);
        self.asm.set(R1, R7 >> TRANSPORT_SHIFT);
        self.asm.jump_if(R1.is(0), none);
    }

    fn call_untyped(&mut self) {
        self.routine(Routine::Untyped, (R6, R7, 0));
        self.asm.set(R7, R0);
    }

    fn forget_untyped(&mut self, view: fanpcap_bpf::assembler::Register) {
        self.asm.set(
            view,
            (view << (64 - TRANSPORT_SHIFT)) >> (64 - TRANSPORT_SHIFT),
        );
    }

    /// Emits [`Routine::Untyped`].
    pub(super) fn untyped_routine(&mut self) {
        let [again, none, found] = self.asm.labels();
        let scratch = std::mem::replace(&mut self.scratch, WALKED_SCRATCH);
        self.asm.set(R7, R2);
        self.asm.set(R8, R7 >> TRANSPORT_SHIFT);
        self.forget_untyped(R7);
        self.forget(OUTER);
        self.read(R9, Width::Byte, Origin::Current, 0, none);
        self.asm.alu(Op::Right, R9, 4);
        self.restart_view(INNER | CHECKED);
        let stages = self.stages();
        self.asm.when(R9.is(0), |asm| asm.alu(Op::Add, R8, 4));
        self.asm.jump(stages.ethernet);
        self.walk_from(stages);
        self.asm.jump_if(R7.has_any(IPV4 | IPV6), found);
        self.recall(OUTER);
        let stages = self.stages();
        self.asm
            .unless(R9.is(6), |asm| asm.branch(R9.is(0), again, none));
        self.asm.alu(Op::Or, R7, CHECKED);
        self.asm.jump(stages.ipv6);
        self.asm.bind(again);
        self.asm.alu(Op::Sub, R8, 4);
        self.restart_view(INNER | CHECKED);
        self.asm.jump(stages.ethernet);
        self.walk_from(stages);
        self.asm.jump_if(R7.has_any(IPV4 | IPV6), found);
        self.asm.bind(none);
        self.recall(OUTER);
        self.asm.bind(found);
        self.asm.exit_with(R7);
        self.scratch = scratch;
    }

    /// Jumps to `no` if the frame has fewer than r9 bytes from the offset in r8 on. Clobbers r0 to
    /// r5.
    pub(super) fn require_fit(&mut self, no: Label) {
        self.length();
        self.asm.alu(Op::Sub, R1, R8);
        self.asm.jump_if(R9.above(R1), no);
    }

    /// If [`CHECKED`] is set in the view, jumps to `no` for an IPv4 header whose total length or
    /// checksum is wrong. Loads the header's length in words into r1. Clobbers r9.
    pub(super) fn require_agreement(&mut self, header: Bytes, no: Label) {
        let typed = self.asm.label();
        self.require(CHECKED, typed);
        header.at(2).half(&mut self.asm, R9);
        self.require_fit(no);
        self.words(header);
        self.asm.set(R3, R1 << 2);
        self.asm.jump_if(R9.below(R3), no);
        self.routine(Routine::Checksum, (R6, R8));
        self.asm.jump_if(R0.is(0), no);
        self.asm.alu(Op::And, R7, !CHECKED);
        self.asm.bind(typed);
        self.words(header);
    }

    fn words(&mut self, header: Bytes) {
        header.byte(&mut self.asm, R1);
        self.asm.alu(Op::And, R1, 15);
    }

    /// Emits [`Routine::Checksum`] (RFC 1071).
    pub(super) fn checksum_routine(&mut self) {
        let wrong = self.asm.label();
        self.asm.set(R7, R2);
        self.asm.set(R8, R3);
        // The verifier must be able to prove that the length is 1 to 60.
        self.asm.alu(Op::And, R8, 60);
        self.asm.jump_if(R8.below(20), wrong);
        for at in 0..8 {
            self.asm.store(Width::Double, R10, SUMMED + 8 * at, 0);
        }
        self.copy(R7, R8, SUMMED, wrong);
        self.asm.set(R0, 0);
        for at in 0..15 {
            self.asm.load(Width::Word, R1, R10, SUMMED + 4 * at);
            self.asm.alu(Op::Add, R0, R1);
        }
        for bits in [32, 16, 16] {
            self.asm.set(R1, R0 >> bits);
            self.asm.set(R0, ((R0 << (64 - bits)) >> (64 - bits)) + R1);
        }
        self.asm.jump_if(R0.is_not(0xffff), wrong);
        self.asm.exit();
        self.asm.bind(wrong);
        self.asm.exit_with(0);
    }
}
