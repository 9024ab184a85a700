//! Instructions and labels: an assembler whose jumps go forward only, and which leaves out what
//! can't be reached.

use super::EbpfError;
use fanpcap_bpf::{Instruction, Relocation};

mod finish;
mod jumps;
mod operations;

pub(super) use operations::{
    If, Op, Operand, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, Register, Width,
};

/// A place in the code, bound once and behind all jumps to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// The code so far.
#[derive(Debug)]
pub(super) struct Assembler {
    code: Vec<Instruction>,
    labels: Vec<Binding>,
    /// In this order.
    bound: Vec<Label>,
    jumps: Vec<(usize, Label)>,
    calls: Vec<(usize, Label)>,
    relocations: Vec<(usize, Relocation)>,
    notes: Vec<(usize, String)>,
    conditions: usize,
    /// Whether the next instruction can be reached.
    live: bool,
}

/// Where a label is bound, and whether something jumps to it.
#[derive(Clone, Copy, Debug, Default)]
struct Binding {
    at: Option<usize>,
    used: bool,
}

/// Most instructions, so that each jump's 16 bits reach.
pub const INSTRUCTIONS_MAX: usize = 30_000;
/// Most conditional jumps: the verifier keeps a state for each that it has still to come back to,
/// 8192 at most (BPF_COMPLEXITY_LIMIT_JMP_SEQ), and one more for some that it simulates as
/// mispredicted.
pub const CONDITIONS_MAX: usize = 4_000;

/// Most instructions, those of a function and of what it calls counted with each call. Where the
/// verifier goes through functions with each call it goes through these, each once or twice, up to
/// 7 times at worst, and gives up at a million. Where functions are verified once, what counts is
/// [`INSTRUCTIONS_MAX`]: up to 14 times each without `CAP_PERFMON`.
pub const STEPS_MAX: usize = 100_000;

impl Assembler {
    pub(super) fn new() -> Self {
        Self {
            code: Vec::new(),
            labels: Vec::new(),
            bound: Vec::new(),
            jumps: Vec::new(),
            calls: Vec::new(),
            relocations: Vec::new(),
            notes: Vec::new(),
            conditions: 0,
            live: true,
        }
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels.push(Binding::default());
        Label(self.labels.len() - 1)
    }

    /// Binds a label here. A jump to it that would be the last instruction is left out, as the
    /// kernel would, which takes long for that; and a condition that jumps to it over a jump
    /// elsewhere becomes the contrary condition that jumps there.
    pub(super) fn bind(&mut self, label: Label) {
        while self.ends_with_jump_to(label) || self.turn_around(label) {
            self.leave_out_last();
        }
        let here = self.code.len();
        if let Some(place) = self.labels.get_mut(label.0) {
            place.at = Some(here);
            self.live |= place.used;
            self.bound.push(label);
        }
    }

    /// Whether what comes next can be reached.
    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    /// Says what the instructions from here on are for.
    pub(super) fn note(&mut self, what: impl Into<String>) {
        self.notes.push((self.code.len(), what.into()));
    }

    fn push(&mut self, instruction: Instruction) {
        // Beyond the limit nothing is kept: `finish` refuses, and memory stays bounded.
        if self.live && self.code.len() <= INSTRUCTIONS_MAX {
            self.code.push(instruction);
        }
    }

    fn operate(&mut self, class: u8, op: u8, target: Register, source: Operand) {
        let instruction = match source {
            Operand::Register(source) => {
                Instruction::new(class | op | FROM_REGISTER, target.0, source.0, 0, 0)
            }
            Operand::Number(number) => Instruction::new(class | op, target.0, 0, 0, number),
        };
        self.push(instruction);
    }

    pub(super) fn alu(&mut self, op: Op, target: Register, source: impl Into<Operand>) {
        self.operate(ALU64, op as u8, target, source.into());
    }

    /// In 32 bits; the upper half becomes 0.
    pub(super) fn alu32(&mut self, op: Op, target: Register, source: impl Into<Operand>) {
        self.operate(ALU32, op as u8, target, source.into());
    }

    pub(super) fn set(&mut self, target: Register, source: impl Into<Operand>) {
        self.alu(Op::Move, target, source);
    }

    /// A number of 64 bits, in as few instructions as it needs.
    pub(super) fn number(&mut self, target: Register, value: u64) {
        let half = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap_or(0) as i32;
        let low = half(value);
        if value >> 31 == 0 {
            self.set(target, low);
        } else if value >> 32 == 0 {
            self.alu32(Op::Move, target, low);
        } else {
            self.wide(target, 0, low, half(value >> 32));
        }
    }

    fn wide(&mut self, target: Register, kind: u8, low: i32, high: i32) {
        self.push(Instruction::new(LOAD_WIDE, target.0, kind, 0, low));
        self.push(Instruction::new(0, 0, 0, 0, high));
    }

    /// A map, as helpers want it.
    pub(super) fn map(&mut self, target: Register, map: usize) {
        self.relocate(Relocation::Map(map));
        self.wide(target, PSEUDO_MAP_FD, 0, 0);
    }

    /// The address of byte `offset` of a map's one value.
    pub(super) fn value(&mut self, target: Register, map: usize, offset: i32) {
        self.relocate(Relocation::Value(map));
        self.wide(target, PSEUDO_MAP_VALUE, 0, offset);
    }

    /// Subtracts as many bytes as the loader knows lie before the buffer's own.
    pub(super) fn subtract_start(&mut self, target: Register) {
        self.relocate(Relocation::Start);
        self.alu(Op::Sub, target, 0);
    }

    fn relocate(&mut self, relocation: Relocation) {
        if self.live {
            self.relocations.push((self.code.len(), relocation));
        }
    }

    pub(super) fn load(&mut self, width: Width, target: Register, base: Register, at: i16) {
        let code = 0x61 | width as u8;
        self.push(Instruction::new(code, target.0, base.0, at, 0));
    }

    pub(super) fn store(
        &mut self,
        width: Width,
        base: Register,
        at: i16,
        source: impl Into<Operand>,
    ) {
        let instruction = match source.into() {
            Operand::Register(source) => {
                Instruction::new(0x63 | width as u8, base.0, source.0, at, 0)
            }
            Operand::Number(number) => Instruction::new(0x62 | width as u8, base.0, 0, at, number),
        };
        self.push(instruction);
    }

    /// Adds to 64 bits of memory, as one step for all CPUs.
    pub(super) fn atomic_add(&mut self, base: Register, at: i16, source: Register) {
        self.push(Instruction::new(0xdb, base.0, source.0, at, 0));
    }

    /// From network order: 16 or 32 bits as a number, or 64.
    pub(super) fn big_endian(&mut self, target: Register, bits: i32) {
        self.push(Instruction::new(0xdc, target.0, 0, 0, bits));
    }

    pub(super) fn jump(&mut self, to: Label) {
        if self.live {
            self.jumps.push((self.code.len(), to));
            self.use_label(to);
            self.push(Instruction::new(JUMP, 0, 0, 0, 0));
            self.live = false;
        }
    }

    pub(super) fn jump_if(
        &mut self,
        what: If,
        left: Register,
        right: impl Into<Operand>,
        to: Label,
    ) {
        self.condition(JUMP64, what, left, right.into(), to);
    }

    /// Compares the lower halves.
    pub(super) fn jump32_if(
        &mut self,
        what: If,
        left: Register,
        right: impl Into<Operand>,
        to: Label,
    ) {
        self.condition(JUMP32, what, left, right.into(), to);
    }

    fn condition(&mut self, class: u8, what: If, left: Register, right: Operand, to: Label) {
        if self.live {
            self.jumps.push((self.code.len(), to));
            self.use_label(to);
            self.conditions += 1;
            self.operate(class, what as u8, left, right);
        }
    }

    fn use_label(&mut self, label: Label) {
        if let Some(place) = self.labels.get_mut(label.0) {
            debug_assert!(place.at.is_none(), "a jump backwards");
            place.used = true;
        }
    }

    /// A helper of the kernel (enum bpf_func_id).
    pub(super) fn call(&mut self, helper: i32) {
        self.push(Instruction::new(CALL, 0, 0, 0, helper));
    }

    /// A function of this program, whose label may be bound before.
    pub(super) fn call_function(&mut self, function: Label) {
        if self.live {
            self.calls.push((self.code.len(), function));
            if let Some(place) = self.labels.get_mut(function.0) {
                place.used = true;
            }
            self.push(Instruction::call_function(0));
        }
    }

    pub(super) fn exit(&mut self) {
        self.push(Instruction::exit());
        self.live = false;
    }
}

// Documentation/bpf/standardization/instruction-set.rst.
const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const JUMP64: u8 = 0x05;
const JUMP32: u8 = 0x06;
const JUMP: u8 = 0x05;
const CALL: u8 = 0x85;
const FROM_REGISTER: u8 = 0x08;
const LOAD_WIDE: u8 = 0x18;
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
