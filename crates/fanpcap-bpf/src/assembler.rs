//! Assembles eBPF code from instructions and labels. Jumps go forward, except at the end of loops.
//! Unreachable code is omitted.
//!
//! ```
//! use fanpcap_bpf::assembler::{Assembler, R0, R1};
//! use fanpcap_bpf::ProgramKind;
//!
//! let mut asm = Assembler::new();
//! let done = asm.label();
//! asm.set(R0, 0);
//! asm.jump_if(R1.is(0), done);
//! asm.set(R0, 1);
//! asm.bind(done);
//! asm.exit();
//! assert_eq!(asm.finish(ProgramKind::SocketFilter, Vec::new())?.instructions.len(), 4);
//! # Ok::<(), fanpcap_bpf::assembler::AssemblerError>(())
//! ```

use crate::{Instruction, Relocation};

mod finish;
mod blocks;
mod jumps;
mod operations;
mod value;

pub use blocks::Blocks;
pub use finish::AssemblerError;
pub use operations::{
    If, Op, Operand, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, Register, Width,
};
pub use value::{Alu, Arguments, Condition, MapArgument, Step, Value, map, stack};

/// A position in the code. A label is bound once. All jumps to the label come before this, except
/// those of [`Assembler::repeat_if`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// The code so far.
#[derive(Debug)]
pub struct Assembler {
    code: Vec<Instruction>,
    labels: Vec<Binding>,
    /// Bound labels, in the order of their positions.
    bound: Vec<Label>,
    jumps: Vec<(usize, Label)>,
    calls: Vec<(usize, Label)>,
    relocations: Vec<(usize, Relocation)>,
    notes: Vec<(usize, String)>,
    conditions: usize,
    /// Whether the next instruction is reachable.
    live: bool,
}

/// The position of a label, if it is bound, and whether a jump targets the label.
#[derive(Clone, Copy, Debug, Default)]
struct Binding {
    at: Option<usize>,
    used: bool,
}

/// Maximum number of instructions. All jumps within so many instructions fit into 16-bit offsets.
pub const INSTRUCTIONS_MAX: usize = 30_000;
/// Maximum number of conditional jumps. The verifier keeps up to two states for each jump: one for
/// the path that it verifies later, and one for the path that a CPU might take by misprediction. It
/// keeps at most 8192 states (BPF_COMPLEXITY_LIMIT_JMP_SEQ).
pub const CONDITIONS_MAX: usize = 4_000;

/// Maximum number of instructions, where those of a function count once for each call of the
/// function. A verifier that follows every call visits each instruction once or twice, and at worst
/// 7 times. The verifier refuses the BPF program after a million visits. A verifier that checks
/// each function once visits each instruction up to 14 times without `CAP_PERFMON`; for such a
/// verifier [`INSTRUCTIONS_MAX`] is the limit.
pub const STEPS_MAX: usize = 100_000;

impl Assembler {
    /// An assembler without code.
    pub fn new() -> Self {
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

    /// A label that is not bound yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(Binding::default());
        Label(self.labels.len() - 1)
    }

    /// Labels that are not bound yet.
    pub fn labels<const N: usize>(&mut self) -> [Label; N] {
        std::array::from_fn(|_| self.label())
    }

    /// Binds a label to the current end of the code. If the last instruction only jumps to the
    /// label, removes the instruction: the kernel would remove it too, but slowly. If the code ends
    /// with a conditional jump to the label and a jump to another label, replaces both by one jump:
    /// the inverse condition jumps to the other label.
    pub fn bind(&mut self, label: Label) {
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

    /// Whether the next instruction is reachable. Unreachable instructions are omitted.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Notes the purpose of the instructions from here on.
    pub fn note(&mut self, what: impl Into<String>) {
        self.notes.push((self.code.len(), what.into()));
    }

    fn push(&mut self, instruction: Instruction) {
        // Drops instructions beyond the limit, so that memory stays bounded. `finish` then returns
        // an error.
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

    /// A 64-bit operation.
    pub fn alu(&mut self, op: Op, target: Register, source: impl Into<Operand>) {
        self.operate(ALU64, op as u8, target, source.into());
    }

    /// A 32-bit operation; it clears the upper half.
    pub fn alu32(&mut self, op: Op, target: Register, source: impl Into<Operand>) {
        self.operate(ALU32, op as u8, target, source.into());
    }

    /// Sets a register. Numbers are sign-extended.
    pub fn set(&mut self, target: Register, value: impl Value) {
        value.put(self, target, Alu::All);
    }

    /// Sets a register by 32-bit operations, which clear the upper half. Emits nothing for a
    /// register that is set to itself.
    pub fn set32(&mut self, target: Register, value: impl Value) {
        value.put(self, target, Alu::Lower);
    }

    /// Loads a 64-bit constant in as few instructions as possible.
    pub fn number(&mut self, target: Register, value: u64) {
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

    /// Loads a map as an argument of a helper. `map` is its index in [`crate::Object::maps`].
    pub fn map(&mut self, target: Register, map: usize) {
        self.relocate(Relocation::Map(map));
        self.wide(target, PSEUDO_MAP_FD, 0, 0);
    }

    /// Loads the address of byte `offset` of a map's only value.
    pub fn value(&mut self, target: Register, map: usize, offset: i32) {
        self.relocate(Relocation::Value(map));
        self.wide(target, PSEUDO_MAP_VALUE, 0, offset);
    }

    /// Subtracts the number of frame bytes before the socket buffer's first byte. The loader fills
    /// in the number.
    pub fn subtract_start(&mut self, target: Register) {
        self.relocate(Relocation::Start);
        self.alu(Op::Sub, target, 0);
    }

    fn relocate(&mut self, relocation: Relocation) {
        if self.live {
            self.relocations.push((self.code.len(), relocation));
        }
    }

    /// Loads a number from memory at `base` + `at`. Clears the higher bits of the register.
    pub fn load(&mut self, width: Width, target: Register, base: Register, at: i16) {
        let code = 0x61 | width as u8;
        self.push(Instruction::new(code, target.0, base.0, at, 0));
    }

    /// Loads a number in network byte order from memory at `base` + `at`.
    pub fn load_big_endian(&mut self, width: Width, target: Register, base: Register, at: i16) {
        self.load(width, target, base, at);
        if width.bytes() > 1 {
            self.big_endian(target, 8 * i32::from(width.bytes()));
        }
    }

    /// Stores to memory at `base` + `at`.
    pub fn store(&mut self, width: Width, base: Register, at: i16, source: impl Into<Operand>) {
        let instruction = match source.into() {
            Operand::Register(source) => {
                Instruction::new(0x63 | width as u8, base.0, source.0, at, 0)
            }
            Operand::Number(number) => Instruction::new(0x62 | width as u8, base.0, 0, at, number),
        };
        self.push(instruction);
    }

    /// Adds `source` to 64 bits of memory at `base` + `at`, atomically.
    pub fn atomic_add(&mut self, base: Register, at: i16, source: Register) {
        self.atomic(Op::Add as i32, base, at, source);
    }

    /// Adds `source` to 64 bits of memory at `base` + `at`, atomically, and sets `source` to their
    /// former value. The operation is a full barrier for memory accesses.
    pub fn fetch_add(&mut self, base: Register, at: i16, source: Register) {
        self.atomic(Op::Add as i32 | FETCH, base, at, source);
    }

    /// As [`Assembler::fetch_add`], but clears the bits that are not set in `source`.
    pub fn fetch_and(&mut self, base: Register, at: i16, source: Register) {
        self.atomic(Op::And as i32 | FETCH, base, at, source);
    }

    /// As [`Assembler::fetch_add`], but sets the bits that are set in `source`.
    pub fn fetch_or(&mut self, base: Register, at: i16, source: Register) {
        self.atomic(Op::Or as i32 | FETCH, base, at, source);
    }

    /// As [`Assembler::fetch_add`], but replaces the 64 bits by `source`.
    pub fn exchange(&mut self, base: Register, at: i16, source: Register) {
        self.atomic(EXCHANGE | FETCH, base, at, source);
    }

    fn atomic(&mut self, op: i32, base: Register, at: i16, source: Register) {
        self.push(Instruction::new(ATOMIC, base.0, source.0, at, op));
    }

    /// Converts the lower 16, 32 or 64 bits of a register from network byte order.
    pub fn big_endian(&mut self, target: Register, bits: i32) {
        self.push(Instruction::new(0xdc, target.0, 0, 0, bits));
    }

    /// Converts the lower 16, 32 or 64 bits of a register from little-endian byte order.
    pub fn little_endian(&mut self, target: Register, bits: i32) {
        self.push(Instruction::new(0xd4, target.0, 0, 0, bits));
    }

    /// Jumps to a label that is not bound yet.
    pub fn jump(&mut self, to: Label) {
        if self.live {
            self.jumps.push((self.code.len(), to));
            self.use_label(to);
            self.push(Instruction::new(JUMP, 0, 0, 0, 0));
            self.live = false;
        }
    }

    /// Jumps, if the condition holds, to a label that is not bound yet.
    pub fn jump_if(&mut self, condition: Condition, to: Label) {
        self.condition(JUMP64, condition, to);
    }

    /// Like [`Assembler::jump_if`], for a condition on the lower 32 bits.
    pub fn jump32_if(&mut self, condition: Condition, to: Label) {
        self.condition(JUMP32, condition, to);
    }

    /// Jumps to `yes` if the condition holds, else to `no`.
    pub fn branch(&mut self, condition: Condition, yes: Label, no: Label) {
        self.jump_if(condition, yes);
        self.jump(no);
    }

    /// Jumps back to a bound label, if the condition holds. Since Linux 5.3 the verifier accepts a
    /// loop if it can prove that the loop ends.
    pub fn repeat_if(&mut self, condition: Condition, to: Label) {
        if self.live {
            self.conditions += 1;
            self.jumps.push((self.code.len(), to));
            if let Some(place) = self.labels.get_mut(to.0) {
                place.used = true;
            }
            let Condition { what, left, right } = condition;
            self.operate(JUMP64, what as u8, left, right);
        }
    }

    fn condition(&mut self, class: u8, condition: Condition, to: Label) {
        if self.live {
            self.jumps.push((self.code.len(), to));
            self.use_label(to);
            self.conditions += 1;
            let Condition { what, left, right } = condition;
            self.operate(class, what as u8, left, right);
        }
    }

    fn use_label(&mut self, label: Label) {
        if let Some(place) = self.labels.get_mut(label.0) {
            debug_assert!(place.at.is_none(), "a jump backwards");
            place.used = true;
        }
    }

    /// Calls a helper of the kernel ([`crate::kernel::helper`]).
    pub fn call(&mut self, helper: i32, arguments: impl Arguments) {
        arguments.put(self);
        self.push(Instruction::new(CALL, 0, 0, 0, helper));
    }

    /// Calls a kernel function by its BTF type id.
    pub fn call_kernel(&mut self, function: i32, arguments: impl Arguments) {
        arguments.put(self);
        self.push(Instruction::new(CALL, 0, PSEUDO_KERNEL_CALL, 0, function));
    }

    /// Calls a BPF function, whose label may already be bound.
    pub fn call_function(&mut self, function: Label, arguments: impl Arguments) {
        arguments.put(self);
        if self.live {
            self.calls.push((self.code.len(), function));
            if let Some(place) = self.labels.get_mut(function.0) {
                place.used = true;
            }
            self.push(Instruction::call_function(0));
        }
    }

    /// Returns a value from the function. In the main function, ends the BPF program with the
    /// value.
    pub fn exit_with(&mut self, value: impl Value) {
        self.set(R0, value);
        self.exit();
    }

    /// Returns from the function. In the main function, ends the BPF program.
    pub fn exit(&mut self) {
        self.push(Instruction::exit());
        self.live = false;
    }
}

impl Default for Assembler {
    fn default() -> Self {
        Self::new()
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
/// `BPF_STX | BPF_ATOMIC | BPF_DW`; the immediate operand is the operation.
const ATOMIC: u8 = 0xdb;
/// In an atomic operation: the source register gets the former value.
const FETCH: i32 = 0x01;
const EXCHANGE: i32 = 0xe0;
const LOAD_WIDE: u8 = 0x18;
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
/// `BPF_PSEUDO_KFUNC_CALL`.
const PSEUDO_KERNEL_CALL: u8 = 2;
