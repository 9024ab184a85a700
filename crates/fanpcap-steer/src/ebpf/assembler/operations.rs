//! Registers, operands and operations.

/// A register. r0 is a result. r1 to r5 are a call's arguments; the call clobbers them. r6 to r9
/// survive a call. r10 points to the end of the stack frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Register(pub(in super::super) u8);

pub(in super::super) const R0: Register = Register(0);
pub(in super::super) const R1: Register = Register(1);
pub(in super::super) const R2: Register = Register(2);
pub(in super::super) const R3: Register = Register(3);
pub(in super::super) const R4: Register = Register(4);
pub(in super::super) const R5: Register = Register(5);
pub(in super::super) const R6: Register = Register(6);
pub(in super::super) const R7: Register = Register(7);
pub(in super::super) const R8: Register = Register(8);
pub(in super::super) const R9: Register = Register(9);
pub(in super::super) const R10: Register = Register(10);

/// Source operand of an instruction.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Operand {
    Register(Register),
    Number(i32),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Self::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Self {
        Self::Number(number)
    }
}

/// Size of a load or store (BPF_SIZE).
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Width {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
    Double = 0x18,
}

/// BPF_OP of the arithmetic classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Op {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    Left = 0x60,
    Right = 0x70,
    Negate = 0x80,
    Mod = 0x90,
    Xor = 0xa0,
    Move = 0xb0,
}

/// BPF_OP of the jump classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum If {
    Equal = 0x10,
    Greater = 0x20,
    GreaterEqual = 0x30,
    AnyBit = 0x40,
    NotEqual = 0x50,
    Less = 0xa0,
    LessEqual = 0xb0,
    SignedLess = 0xc0,
}
