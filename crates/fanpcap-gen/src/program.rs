//! The BPF program that sends: each run makes the pool's next frame and redirects it to a device.

use fanpcap_bpf::Instruction;
use fanpcap_linux::bpf::Map;

/// Parameters of the BPF program.
#[derive(Debug)]
pub(crate) struct Shape<'a> {
    /// One entry of [`STATE_LEN`] bytes: frames made, the next slot, frames that could not be made.
    pub(crate) state: &'a Map,
    /// An entry for each frame: [`ROW_HEAD`] bytes, then the frame's first `own_len` bytes.
    pub(crate) slots: &'a Map,
    /// Number of entries.
    pub(crate) len: i32,
    /// Maximum bytes to copy.
    pub(crate) own_len: i32,
    /// All frames have the length of the frame that the run starts with.
    pub(crate) even: bool,
    /// Some frames have a stamp.
    pub(crate) stamps: bool,
    /// The device.
    pub(crate) ifindex: i32,
}

/// Three 64-bit numbers.
pub(crate) const STATE_LEN: usize = 24;
const MADE: i16 = 0;
const SLOT: i16 = 8;
const FAILED: i16 = 16;

/// Head of an entry, four 32-bit numbers: the frame's length minus the greatest length, the number
/// of bytes to copy, the offset of the stamp or 0, and 0.
pub(crate) const ROW_HEAD: i16 = 16;
const SHORTER: i16 = 0;
const COPIED: i16 = 4;
const STAMP: i16 = 8;

/// The BPF program. Pages still contain the bytes of earlier runs, but the kernel resets their
/// length. A single core runs the BPF program, so it needs no atomic instructions.
pub(crate) fn send(shape: &Shape<'_>) -> Vec<Instruction> {
    let mut code = Code::default();
    take_slot(&mut code, shape);
    if !shape.even {
        code.push(load_u32(ARG2, ROW, SHORTER));
        code.jump(IF_EQUAL, ARG2, 0, 5);
        code.push(shift_left(ARG2, 32));
        code.push(shift_right_signed(ARG2, 32));
        code.push(copy(ARG1, CONTEXT));
        code.push(call(ADJUST_TAIL));
        code.fail(UNLESS_EQUAL, RESULT, 0);
    }
    match i16::try_from(shape.own_len) {
        Ok(len) if shape.even && len <= WORDS_MAX => write_words(&mut code, len),
        _ => write(&mut code, shape.own_len),
    }
    if shape.stamps {
        stamp(&mut code);
    }
    code.push(Instruction::set(ARG1, shape.ifindex));
    code.push(Instruction::set(ARG2, 0));
    code.push(call(REDIRECT));
    code.push(Instruction::exit());
    code.finish()
}

/// Writes the entry's bytes to the frame.
fn write(code: &mut Code, own_len: i32) {
    code.push(load_u32(ARG4, ROW, COPIED));
    code.fail(IF_GREATER, ARG4, own_len);
    code.fail(IF_EQUAL, ARG4, 0);
    code.push(copy(ARG3, ROW));
    code.push(add(ARG3, i32::from(ROW_HEAD)));
    code.push(Instruction::set(ARG2, 0));
    code.push(copy(ARG1, CONTEXT));
    code.push(call(STORE_BYTES));
    code.fail(UNLESS_EQUAL, RESULT, 0);
}

/// Writes `len` bytes of the entry to the frame, word by word. This is faster than the helper.
fn write_words(code: &mut Code, len: i16) {
    code.push(load_u32(ARG1, CONTEXT, DATA));
    code.push(load_u32(ARG2, CONTEXT, DATA_END));
    code.push(copy(ARG3, ARG1));
    code.push(add(ARG3, i32::from(len)));
    code.fail_beyond(ARG3, ARG2);
    let mut at = 0;
    while at < len {
        let (width, size) = match len - at {
            8.. => (WORD_64, 8),
            4..=7 => (WORD_32, 4),
            2..=3 => (WORD_16, 2),
            _ => (WORD_8, 1),
        };
        code.push(Instruction::new(LOAD | width, ARG2, ROW, ROW_HEAD + at, 0));
        code.push(Instruction::new(STORE | width, ARG1, ARG2, at, 0));
        at += size;
    }
}

/// The greatest length that is written word by word.
const WORDS_MAX: i16 = 128;

/// Takes the next slot and the frame's number.
fn take_slot(code: &mut Code, shape: &Shape<'_>) {
    code.push(copy(CONTEXT, ARG1));
    code.push_all(shape.state.address(STATE));
    code.push(load_u64(NUMBER, STATE, MADE));
    code.push(copy(ARG1, NUMBER));
    code.push(add(ARG1, 1));
    code.push(store_u64(STATE, MADE, ARG1));
    code.push(load_u64(ARG1, STATE, SLOT));
    code.push(store_u32(FRAME, -4, ARG1));
    code.push(add(ARG1, 1));
    code.jump(UNLESS_EQUAL, ARG1, shape.len, 1);
    code.push(Instruction::set(ARG1, 0));
    code.push(store_u64(STATE, SLOT, ARG1));
    code.push_all(shape.slots.reference(ARG1));
    code.push(copy(ARG2, FRAME));
    code.push(add(ARG2, -4));
    code.push(call(MAP_LOOKUP));
    code.fail(IF_EQUAL, RESULT, 0);
    code.push(copy(ROW, RESULT));
}

/// Writes the stamp: the number in network order, and its complement.
fn stamp(code: &mut Code) {
    code.push(load_u32(ARG2, ROW, STAMP));
    code.jump(IF_EQUAL, ARG2, 0, 10);
    code.push(network_order(NUMBER));
    code.push(store_u32(FRAME, -16, NUMBER));
    code.push(exclusive_or(NUMBER, -1));
    code.push(store_u32(FRAME, -12, NUMBER));
    code.push(copy(ARG3, FRAME));
    code.push(add(ARG3, -16));
    code.push(Instruction::set(ARG4, 8));
    code.push(copy(ARG1, CONTEXT));
    code.push(call(STORE_BYTES));
    code.fail(UNLESS_EQUAL, RESULT, 0);
}

/// Drops every frame; loading it shows what the kernel supports.
pub(crate) fn drop_all() -> Vec<Instruction> {
    vec![Instruction::set(RESULT, XDP_DROP), Instruction::exit()]
}

/// Instructions. Some jump to the end, which counts a failure.
#[derive(Default)]
struct Code(Vec<Step>);

enum Step {
    Done(Instruction),
    Fail {
        condition: u8,
        left: u8,
        register: u8,
        right: i32,
    },
}

impl Code {
    fn push(&mut self, instruction: Instruction) {
        self.0.push(Step::Done(instruction));
    }

    fn push_all(&mut self, instructions: [Instruction; 2]) {
        self.0.extend(instructions.map(Step::Done));
    }

    fn jump(&mut self, condition: u8, left: u8, right: i32, instructions: i16) {
        self.push(Instruction::new(condition, left, 0, instructions, right));
    }

    fn fail(&mut self, condition: u8, left: u8, right: i32) {
        self.0.push(Step::Fail {
            condition,
            left,
            register: 0,
            right,
        });
    }

    /// Fails if the address in `left` is beyond the address in `right`.
    fn fail_beyond(&mut self, left: u8, right: u8) {
        self.0.push(Step::Fail {
            condition: IF_GREATER_REGISTER,
            left,
            register: right,
            right: 0,
        });
    }

    fn finish(self) -> Vec<Instruction> {
        let end = self.0.len();
        let mut code: Vec<Instruction> = self
            .0
            .into_iter()
            .enumerate()
            .map(|(at, step)| match step {
                Step::Done(instruction) => instruction,
                Step::Fail {
                    condition,
                    left,
                    register,
                    right,
                } => {
                    let distance = i16::try_from(end - at - 1).unwrap_or(i16::MAX);
                    Instruction::new(condition, left, register, distance, right)
                }
            })
            .collect();
        code.extend([
            load_u64(ARG1, STATE, FAILED),
            add(ARG1, 1),
            store_u64(STATE, FAILED, ARG1),
            Instruction::set(RESULT, XDP_DROP),
            Instruction::exit(),
        ]);
        code
    }
}

// Registers: r0 is the result. r1 to r5 are a helper's arguments, which a call clobbers. r6 to r9
// survive a call. r10 points to the end of the stack frame.
const RESULT: u8 = 0;
const ARG1: u8 = 1;
const ARG2: u8 = 2;
const ARG3: u8 = 3;
const ARG4: u8 = 4;
const CONTEXT: u8 = 6;
const STATE: u8 = 7;
const ROW: u8 = 8;
const NUMBER: u8 = 9;
const FRAME: u8 = 10;

/// enum xdp_action and bpf_func_id of linux/bpf.h.
const XDP_DROP: i32 = 1;
const MAP_LOOKUP: i32 = 1;
const REDIRECT: i32 = 23;
const ADJUST_TAIL: i32 = 65;
const STORE_BYTES: i32 = 190;

// Operation codes: Documentation/bpf/standardization/instruction-set.rst.
const IF_EQUAL: u8 = 0x15;
const IF_GREATER: u8 = 0x25;
const IF_GREATER_REGISTER: u8 = 0x2d;
const UNLESS_EQUAL: u8 = 0x55;
/// BPF_LDX and BPF_STX with BPF_MEM, and BPF_SIZE.
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const WORD_64: u8 = 0x18;
const WORD_32: u8 = 0x00;
const WORD_16: u8 = 0x08;
const WORD_8: u8 = 0x10;

/// Offsets in struct xdp_md of linux/bpf.h.
const DATA: i16 = 0;
const DATA_END: i16 = 4;

fn load_u32(to: u8, at: u8, offset: i16) -> Instruction {
    Instruction::new(0x61, to, at, offset, 0)
}

fn load_u64(to: u8, at: u8, offset: i16) -> Instruction {
    Instruction::new(0x79, to, at, offset, 0)
}

fn store_u32(at: u8, offset: i16, from: u8) -> Instruction {
    Instruction::new(0x63, at, from, offset, 0)
}

fn store_u64(at: u8, offset: i16, from: u8) -> Instruction {
    Instruction::new(0x7b, at, from, offset, 0)
}

fn copy(to: u8, from: u8) -> Instruction {
    Instruction::new(0xbf, to, from, 0, 0)
}

fn add(to: u8, value: i32) -> Instruction {
    Instruction::new(0x07, to, 0, 0, value)
}

fn exclusive_or(to: u8, value: i32) -> Instruction {
    Instruction::new(0xa7, to, 0, 0, value)
}

fn shift_left(to: u8, bits: i32) -> Instruction {
    Instruction::new(0x67, to, 0, 0, bits)
}

fn shift_right_signed(to: u8, bits: i32) -> Instruction {
    Instruction::new(0xc7, to, 0, 0, bits)
}

/// Swaps the low 32 bits to network order and clears the others.
fn network_order(of: u8) -> Instruction {
    Instruction::new(0xdc, of, 0, 0, 32)
}

fn call(helper: i32) -> Instruction {
    Instruction::new(0x85, 0, 0, 0, helper)
}
