//! Copies a frame's first bytes into a record.

use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use fanpcap_ring::pool::layout::record::DATA;

/// The length of the shortest frames, without their checksum. In a flood of packets, most frames
/// have this length.
const SHORTEST: i16 = 60;
/// The most bytes that single loads copy. The helper copies longer frames.
const LONGEST: i16 = 128;
/// The number of bytes to copy is rounded up to the first of these lengths that is large enough. If
/// the frame is shorter than that length, [`by_length`] copies the frame.
const STEPS: [i16; 3] = [64, 96, LONGEST];
/// [`by_length`] copies this many bytes before it reads the length.
const BEGIN: i16 = 56;

/// Copies r8 bytes of the frame, at most `most`, to the record in r9. Expects the context in r6.
///
/// Up to [`LONGEST`] bytes are copied by single loads, which take half the time of the helper. The
/// loads may copy more than r8 bytes, if the frame is long enough. The block always has room for
/// these bytes. So the code needs no loop. If the helper fails, which can't happen, the code jumps
/// to `failed`.
pub(super) fn copy(asm: &mut Assembler, most: i32, failed: Label) {
    let [helper, done, whole] = asm.labels();
    asm.load(Width::Word, R1, R6, xdp::DATA);
    asm.load(Width::Word, R2, R6, xdp::DATA_END);
    asm.when(R8.at_most(i32::from(SHORTEST)), |asm| {
        reach(asm, SHORTEST, helper);
        words(asm, 0, SHORTEST);
        asm.jump(done);
    });
    asm.jump_if(R8.above(i32::from(LONGEST)), helper);
    for step in STEPS {
        asm.when(R8.at_most(i32::from(step)), |asm| {
            reach(asm, step, whole);
            words(asm, 0, step);
            asm.jump(done);
        });
    }
    asm.bind(whole);
    by_length(asm, helper, done);
    asm.bind(helper);
    by_helper(asm, most, failed);
    asm.bind(done);
}

/// Copies r8 bytes of a frame if r8 is even; jumps to `helper` if r8 is odd. Has a branch for
/// lengths that are 2 bytes more than a multiple of four, because most frames with TCP have such a
/// length.
fn by_length(asm: &mut Assembler, helper: Label, done: Label) {
    // Tests a copy in r3. If the code tested r8 itself, the verifier would lose the bounds of r8.
    asm.set(R3, R8 & 1);
    asm.jump_if(R3.is_not(0), helper);
    reach(asm, BEGIN, helper);
    words(asm, 0, BEGIN);
    for at in (BEGIN..LONGEST).step_by(8) {
        let more = asm.label();
        asm.jump_if(R8.at_least(i32::from(at) + 8), more);
        asm.jump_if(R8.is(i32::from(at)), done);
        asm.unless(R8.is(i32::from(at) + 2), |asm| {
            reach(asm, at + 4, helper);
            one(asm, Width::Word, at);
            asm.jump_if(R8.is(i32::from(at) + 4), done);
            reach(asm, at + 6, helper);
            one(asm, Width::Half, at + 4);
            asm.jump(done);
        });
        reach(asm, at + 2, helper);
        one(asm, Width::Half, at);
        asm.jump(done);
        asm.bind(more);
        reach(asm, at + 8, helper);
        one(asm, Width::Double, at);
    }
    asm.jump(done);
}

/// Jumps to `beyond` if the frame's linear part has fewer than `end` bytes.
fn reach(asm: &mut Assembler, end: i16, beyond: Label) {
    asm.set(R3, R1 + i32::from(end));
    asm.jump_if(R3.above(R2), beyond);
}

/// Copies the bytes of the frame from offset `from` to offset `to`, a multiple of 4 bytes.
fn words(asm: &mut Assembler, from: i16, to: i16) {
    for at in (from..to - 7).step_by(8) {
        one(asm, Width::Double, at);
    }
    if (to - from) % 8 != 0 {
        one(asm, Width::Word, to - 4);
    }
}

/// Copies one word of the frame at offset `at`.
fn one(asm: &mut Assembler, width: Width, at: i16) {
    asm.load(width, R3, R1, at);
    asm.store(width, R9, DATA + at, R3);
}

/// Copies r8 bytes as [`copy`] does, but uses the helper for every length.
pub(super) fn by_helper(asm: &mut Assembler, most: i32, failed: Label) {
    bound(asm, most, failed);
    asm.call(XDP_LOAD_BYTES, (R6, 0, R9 + i32::from(DATA), R8));
    asm.jump_if(R0.is_not(0), failed);
}

/// Proves to the verifier that r8 is from 1 to `most`, which it is. `most` is one less than a power
/// of two. The code compares r8 with 1, not with 0: before Linux 6.8, the verifier learns no bound
/// from a comparison with 0.
pub(super) fn bound(asm: &mut Assembler, most: i32, failed: Label) {
    asm.alu(Op::And, R8, most);
    asm.jump_if(R8.below(1), failed);
}
