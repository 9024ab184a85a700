//! The BPF program that sends: each run makes the pool's next frame and redirects it to a device.

use fanpcap_bpf::assembler::{
    Arguments, Assembler, AssemblerError, Blocks, Label, Op, R0, R1, R2, R3, R4, R6, R7, R8, R9,
    R10, Register, Width, map, stack,
};
use fanpcap_bpf::kernel::{MAP_LOOKUP, REDIRECT, XDP_ADJUST_TAIL, XDP_DROP, XDP_STORE_BYTES, xdp};
use fanpcap_bpf::{Instruction, MapKind, MapSpec, Object, ProgramKind};

/// Parameters of the BPF program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Number of entries: one for each frame.
    pub(crate) len: u32,
    /// Bytes of an entry: [`ROW_HEAD`] bytes, then the frame's first `own_len` bytes.
    pub(crate) row_len: u32,
    /// The greatest number of bytes that are copied from an entry to a frame.
    pub(crate) own_len: i32,
    /// Whether all frames have the length of the frame with which each run of the BPF program
    /// starts.
    pub(crate) even: bool,
    /// Whether some frames have a stamp.
    pub(crate) stamps: bool,
    /// The index of the interface to which the frames are redirected.
    pub(crate) ifindex: i32,
}

/// The index of the map with one entry of [`STATE_LEN`] bytes: the number of frames made, the next
/// slot, and the number of frames that could not be made.
pub(crate) const STATE: usize = 0;
/// The index of the map with an entry for each frame.
pub(crate) const SLOTS: usize = 1;

/// Length of the state in bytes: three 64-bit numbers.
pub(crate) const STATE_LEN: u32 = 24;
const MADE: i16 = 0;
const SLOT: i16 = 8;
const FAILED: i16 = 16;

/// Head of an entry: the frame's length minus the greatest length (64 bits), the number of bytes to
/// copy, and the offset of the stamp or 0 (32 bits each).
pub(crate) const ROW_HEAD: i16 = 16;
const SHORTER: i16 = 0;
const COPIED: i16 = 8;
const STAMP: i16 = 12;

// Registers that survive a helper's call.
const CONTEXT: Register = R6;
const COUNTS: Register = R7;
const ROW: Register = R8;
const NUMBER: Register = R9;

/// The BPF program. The memory of frames still contains the bytes of earlier runs, but the kernel
/// resets the frames' length. So a run writes only the bytes that differ between frames, and
/// adjusts the length. A single core runs the BPF program, so the BPF program needs no atomic
/// instructions.
pub(crate) fn send(shape: &Shape) -> Result<Object, AssemblerError> {
    let mut asm = Assembler::new();
    let failed = asm.label();
    take_slot(&mut asm, shape, failed);
    if !shape.even {
        asm.load(Width::Double, R2, ROW, SHORTER);
        asm.unless(R2.is(0), |asm| {
            call(asm, XDP_ADJUST_TAIL, (CONTEXT, R2), failed)
        });
    }
    match i16::try_from(shape.own_len) {
        Ok(len) if shape.even && len <= WORDS_MAX => write_words(&mut asm, len, failed),
        _ => write(&mut asm, shape.own_len, failed),
    }
    if shape.stamps {
        stamp(&mut asm, failed);
    }
    asm.call(REDIRECT, (shape.ifindex, 0));
    asm.exit();
    asm.bind(failed);
    count(&mut asm, FAILED);
    asm.set(R0, XDP_DROP);
    asm.exit();
    let maps = vec![
        MapSpec::new("state", MapKind::Array, 4, STATE_LEN, 1),
        MapSpec::new("slots", MapKind::Array, 4, shape.row_len, shape.len),
    ];
    asm.finish(ProgramKind::Xdp, maps)
}

/// Adds 1 to a number of the state.
fn count(asm: &mut Assembler, number: i16) {
    asm.load(Width::Double, R1, COUNTS, number);
    asm.alu(Op::Add, R1, 1);
    asm.store(Width::Double, COUNTS, number, R1);
}

/// Calls a helper that returns 0 or an error.
fn call(asm: &mut Assembler, helper: i32, arguments: impl Arguments, failed: Label) {
    asm.call(helper, arguments);
    asm.jump_if(R0.is_not(0), failed);
}

/// Writes the entry's bytes to the frame.
fn write(asm: &mut Assembler, own_len: i32, failed: Label) {
    asm.load(Width::Word, R4, ROW, COPIED);
    asm.jump_if(R4.above(own_len), failed);
    asm.jump_if(R4.is(0), failed);
    let bytes = ROW + i32::from(ROW_HEAD);
    call(asm, XDP_STORE_BYTES, (CONTEXT, 0, bytes, R4), failed);
}

/// Writes `len` bytes of the entry to the frame, word by word. This is faster than the helper.
fn write_words(asm: &mut Assembler, len: i16, failed: Label) {
    asm.load(Width::Word, R1, CONTEXT, xdp::DATA);
    asm.load(Width::Word, R2, CONTEXT, xdp::DATA_END);
    asm.set(R3, R1 + i32::from(len));
    asm.jump_if(R3.above(R2), failed);
    let mut at = 0;
    while at < len {
        let (width, size) = match len - at {
            8.. => (Width::Double, 8),
            4..=7 => (Width::Word, 4),
            2..=3 => (Width::Half, 2),
            _ => (Width::Byte, 1),
        };
        asm.load(width, R2, ROW, ROW_HEAD + at);
        asm.store(width, R1, at, R2);
        at += size;
    }
}

/// The greatest length that is written word by word.
const WORDS_MAX: i16 = 128;

/// Takes the next slot and the frame's number.
fn take_slot(asm: &mut Assembler, shape: &Shape, failed: Label) {
    let len = i32::try_from(shape.len).unwrap_or(i32::MAX);
    asm.set(CONTEXT, R1);
    asm.value(COUNTS, STATE, 0);
    asm.load(Width::Double, NUMBER, COUNTS, MADE);
    count(asm, MADE);
    asm.load(Width::Double, R1, COUNTS, SLOT);
    asm.store(Width::Word, R10, -4, R1);
    asm.alu(Op::Add, R1, 1);
    asm.unless(R1.is_not(len), |asm| asm.set(R1, 0));
    asm.store(Width::Double, COUNTS, SLOT, R1);
    asm.call(MAP_LOOKUP, (map(SLOTS), stack(-4)));
    asm.jump_if(R0.is(0), failed);
    asm.set(ROW, R0);
}

/// Writes the stamp: the number in network order, and its complement.
fn stamp(asm: &mut Assembler, failed: Label) {
    asm.load(Width::Word, R2, ROW, STAMP);
    asm.unless(R2.is(0), |asm| {
        asm.big_endian(NUMBER, 32);
        asm.store(Width::Word, R10, -16, NUMBER);
        asm.alu(Op::Xor, NUMBER, -1);
        asm.store(Width::Word, R10, -12, NUMBER);
        call(asm, XDP_STORE_BYTES, (CONTEXT, R2, stack(-16), 8), failed);
    });
}

/// A BPF program that drops every frame. Whether it can be loaded and run shows what the kernel
/// supports.
pub(crate) fn drop_all() -> [Instruction; 2] {
    [Instruction::set(0, XDP_DROP), Instruction::exit()]
}
