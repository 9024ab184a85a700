//! Registers, operands and operations.

/// A register. r0 has the result of a call. r1 to r5 are a call's arguments; the call clobbers
/// them. r6 to r9 survive a call. r10 points to the end of the stack frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(pub(super) u8);

/// The result of a call, and of the BPF program.
pub const R0: Register = Register(0);
/// An argument; a call clobbers the register.
pub const R1: Register = Register(1);
/// An argument; a call clobbers the register.
pub const R2: Register = Register(2);
/// An argument; a call clobbers the register.
pub const R3: Register = Register(3);
/// An argument; a call clobbers the register.
pub const R4: Register = Register(4);
/// An argument; a call clobbers the register.
pub const R5: Register = Register(5);
/// Survives a call.
pub const R6: Register = Register(6);
/// Survives a call.
pub const R7: Register = Register(7);
/// Survives a call.
pub const R8: Register = Register(8);
/// Survives a call.
pub const R9: Register = Register(9);
/// The end of the stack frame; read-only.
pub const R10: Register = Register(10);

/// Source operand of an instruction.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// A register.
    Register(Register),
    /// A number, sign-extended.
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
pub enum Width {
    /// 8 bits.
    Byte = 0x10,
    /// 16 bits.
    Half = 0x08,
    /// 32 bits.
    Word = 0x00,
    /// 64 bits.
    Double = 0x18,
}

impl Width {
    /// The number of bytes.
    pub fn bytes(self) -> u8 {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
            Self::Double => 8,
        }
    }
}

/// BPF_OP of the arithmetic classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `+`
    Add = 0x00,
    /// `-`
    Sub = 0x10,
    /// `*`
    Mul = 0x20,
    /// `/`; 0 if the divisor is 0.
    Div = 0x30,
    /// `|`
    Or = 0x40,
    /// `&`
    And = 0x50,
    /// `<<`
    Left = 0x60,
    /// `>>`, unsigned.
    Right = 0x70,
    /// Negates the target.
    Negate = 0x80,
    /// `%`
    Mod = 0x90,
    /// `^`
    Xor = 0xa0,
    /// Copies the source to the target.
    Move = 0xb0,
}

/// BPF_OP of the jump classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum If {
    /// `==`
    Equal = 0x10,
    /// `>`
    Greater = 0x20,
    /// `>=`
    GreaterEqual = 0x30,
    /// `&`: at least one bit is set in both.
    AnyBit = 0x40,
    /// `!=`
    NotEqual = 0x50,
    /// `<`
    Less = 0xa0,
    /// `<=`
    LessEqual = 0xb0,
    /// `<`, signed.
    SignedLess = 0xc0,
}
