//! Expressions: the values of registers, the conditions of jumps, and the arguments of calls.

use super::{ALU32, ALU64, Assembler, If, Op, Operand, R1, R2, R3, R4, R5, R10, Register};
use std::ops::{Add, BitAnd, BitOr, BitXor, Mul, Shl, Shr, Sub};

/// A value for a register: a register, a number, or operations on a register, as in
/// `(R8 >> 46) & 7`.
pub trait Value {
    /// Emits the code that puts the value into `target`. No code is needed if the value is the
    /// register `target` itself.
    fn put(self, asm: &mut Assembler, target: Register, width: Alu);
}

/// The bits on which the operations of a [`Value`] work.
#[derive(Clone, Copy, Debug)]
pub enum Alu {
    /// The lower 32 bits; they clear the upper half.
    Lower = ALU32 as isize,
    /// All 64 bits.
    All = ALU64 as isize,
}

impl Value for Operand {
    fn put(self, asm: &mut Assembler, target: Register, width: Alu) {
        asm.operate(width as u8, Op::Move as u8, target, self);
    }
}

impl Value for i32 {
    fn put(self, asm: &mut Assembler, target: Register, width: Alu) {
        Operand::Number(self).put(asm, target, width);
    }
}

impl Value for Register {
    fn put(self, asm: &mut Assembler, target: Register, width: Alu) {
        if self != target {
            Operand::Register(self).put(asm, target, width);
        }
    }
}

/// An operation on a value.
#[derive(Clone, Copy, Debug)]
pub struct Step<V> {
    of: V,
    op: Op,
    by: Operand,
}

impl<V: Value> Value for Step<V> {
    fn put(self, asm: &mut Assembler, target: Register, width: Alu) {
        self.of.put(asm, target, width);
        debug_assert!(
            !matches!(self.by, Operand::Register(by) if by == target),
            "an operand that the value has overwritten"
        );
        asm.operate(width as u8, self.op as u8, target, self.by);
    }
}

macro_rules! operators {
    ($($operator:ident, $method:ident, $op:ident;)*) => {$(
        impl<T: Into<Operand>> $operator<T> for Register {
            type Output = Step<Self>;

            fn $method(self, by: T) -> Step<Self> {
                Step { of: self, op: Op::$op, by: by.into() }
            }
        }

        impl<V: Value, T: Into<Operand>> $operator<T> for Step<V> {
            type Output = Step<Self>;

            fn $method(self, by: T) -> Step<Self> {
                Step { of: self, op: Op::$op, by: by.into() }
            }
        }
    )*};
}

operators! {
    Add, add, Add;
    Sub, sub, Sub;
    Mul, mul, Mul;
    BitAnd, bitand, And;
    BitOr, bitor, Or;
    BitXor, bitxor, Xor;
    Shl, shl, Left;
    Shr, shr, Right;
}

/// The address of a place on the stack, counted from the end of the stack frame.
pub fn stack(at: i16) -> Step<Register> {
    R10 + i32::from(at)
}

/// A map as an argument of a helper. `index` is its index in [`crate::Object::maps`].
pub fn map(index: usize) -> MapArgument {
    MapArgument(index)
}

/// See [`map`].
#[derive(Clone, Copy, Debug)]
pub struct MapArgument(usize);

impl Value for MapArgument {
    fn put(self, asm: &mut Assembler, target: Register, _: Alu) {
        asm.map(target, self.0);
    }
}

/// The arguments of a call, from r1 on: up to five values, set in this order.
pub trait Arguments {
    /// Emits the code that sets the registers.
    fn put(self, asm: &mut Assembler);
}

macro_rules! arguments {
    ($($($name:ident: $register:ident),*;)*) => {$(
        impl<$($name: Value),*> Arguments for ($($name,)*) {
            #[allow(non_snake_case, reason = "the values are named by their types")]
            fn put(self, _asm: &mut Assembler) {
                let ($($name,)*) = self;
                $($name.put(_asm, $register, Alu::All);)*
            }
        }
    )*};
}

arguments! {
    ;
    A: R1;
    A: R1, B: R2;
    A: R1, B: R2, C: R3;
    A: R1, B: R2, C: R3, D: R4;
    A: R1, B: R2, C: R3, D: R4, E: R5;
}

/// A comparison of a register with a register or a number.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    pub(super) what: If,
    pub(super) left: Register,
    pub(super) right: Operand,
}

impl Register {
    /// `==`
    pub fn is(self, right: impl Into<Operand>) -> Condition {
        self.compare(If::Equal, right)
    }

    /// `!=`
    pub fn is_not(self, right: impl Into<Operand>) -> Condition {
        self.compare(If::NotEqual, right)
    }

    /// `>`
    pub fn above(self, right: impl Into<Operand>) -> Condition {
        self.compare(If::Greater, right)
    }

    /// `>=`
    pub fn at_least(self, right: impl Into<Operand>) -> Condition {
        self.compare(If::GreaterEqual, right)
    }

    /// `<`
    pub fn below(self, right: impl Into<Operand>) -> Condition {
        self.compare(If::Less, right)
    }

    /// `<=`
    pub fn at_most(self, right: impl Into<Operand>) -> Condition {
        self.compare(If::LessEqual, right)
    }

    /// At least one bit is set in both.
    pub fn has_any(self, right: impl Into<Operand>) -> Condition {
        self.compare(If::AnyBit, right)
    }

    /// Any comparison.
    pub fn compare(self, what: If, right: impl Into<Operand>) -> Condition {
        Condition {
            what,
            left: self,
            right: right.into(),
        }
    }

    /// `< 0`, signed.
    pub fn is_negative(self) -> Condition {
        self.compare(If::SignedLess, 0)
    }
}
