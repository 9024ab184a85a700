//! The interpreter of classic BPF.
//!
//! The interpreter implements the machine of McCanne and Jacobson, "The BSD Packet Filter" (1993).
//! The interpreter rejects the packet at an unknown instruction, a jump out of the BPF program, a
//! load from outside the packet, or a division by zero.

use crate::Classic;
use crate::classic::{ancillary::SKF_AD_OFF, opcode::*};

/// A packet as a classic BPF program reads it.
pub trait Packet {
    /// The packet's length on the wire, in bytes.
    fn wire_len(&self) -> u32;

    /// The `N` bytes at `at`, if all of them were captured.
    fn bytes<const N: usize>(&self, at: u32) -> Option<[u8; N]>;

    /// The register A after one of the kernel's ancillary loads (linux/filter.h, `SKF_AD_*`).
    /// `offset` counts from `SKF_AD_OFF`; `a` and `x` are the registers before the load.
    fn ancillary(&self, offset: u32, a: u32, x: u32) -> Option<u32> {
        let _ = (offset, a, x);
        None
    }
}

/// The result of a shift by a distance of 32 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shifts {
    /// The result is 0, as in libpcap's interpreter.
    Zero,
    /// The distance is taken modulo 32, as in the kernel.
    Modulo,
}

/// The number of bytes of the packet that the BPF program keeps; 0 rejects the packet.
#[inline]
pub fn run<P: Packet>(program: &[Classic], packet: &P, shifts: Shifts) -> u32 {
    let machine = Machine {
        a: 0,
        x: 0,
        memory: [0; 16],
        packet,
        shifts,
    };
    machine.run(program).unwrap_or(0)
}

struct Machine<'p, P> {
    a: u32,
    x: u32,
    memory: [u32; 16],
    packet: &'p P,
    shifts: Shifts,
}

impl<P: Packet> Machine<'_, P> {
    /// Jumps go only forward, so the loop ends.
    #[inline]
    fn run(mut self, program: &[Classic]) -> Option<u32> {
        let mut at = 0_usize;
        loop {
            let instruction = program.get(at)?;
            at += 1;
            match instruction.code & CLASS {
                RET => return self.returned(instruction),
                JMP => at = at.checked_add(self.jump(instruction)?)?,
                ALU => self.a = self.computed(instruction)?,
                _ => self.transfer(instruction)?,
            }
        }
    }

    fn returned(&self, instruction: &Classic) -> Option<u32> {
        match instruction.code {
            RET_K => Some(instruction.k),
            RET_A => Some(self.a),
            _ => None,
        }
    }

    fn operand(&self, instruction: &Classic) -> u32 {
        if instruction.code & X == 0 {
            instruction.k
        } else {
            self.x
        }
    }

    #[inline]
    fn jump(&self, instruction: &Classic) -> Option<usize> {
        let operand = self.operand(instruction);
        let is_true = match instruction.code & !X {
            JMP_JA if instruction.code & X == 0 => return usize::try_from(instruction.k).ok(),
            JMP_JEQ_K => self.a == operand,
            JMP_JGT_K => self.a > operand,
            JMP_JGE_K => self.a >= operand,
            JMP_JSET_K => self.a & operand != 0,
            _ => return None,
        };
        let over = if is_true {
            instruction.jt
        } else {
            instruction.jf
        };
        Some(over.into())
    }

    #[inline]
    fn computed(&self, instruction: &Classic) -> Option<u32> {
        let (a, operand) = (self.a, self.operand(instruction));
        Some(match instruction.code & !X {
            ALU_ADD_K => a.wrapping_add(operand),
            ALU_SUB_K => a.wrapping_sub(operand),
            ALU_MUL_K => a.wrapping_mul(operand),
            ALU_DIV_K => a.checked_div(operand)?,
            ALU_OR_K => a | operand,
            ALU_AND_K => a & operand,
            ALU_LSH_K | ALU_RSH_K if operand >= 32 && self.shifts == Shifts::Zero => 0,
            ALU_LSH_K => a.wrapping_shl(operand),
            ALU_RSH_K => a.wrapping_shr(operand),
            ALU_NEG if instruction.code & X == 0 => a.wrapping_neg(),
            ALU_MOD_K => a.checked_rem(operand)?,
            ALU_XOR_K => a ^ operand,
            _ => return None,
        })
    }

    /// Loads, stores, and moves between the registers.
    #[inline]
    fn transfer(&mut self, instruction: &Classic) -> Option<()> {
        let Classic { code, k, .. } = *instruction;
        match code {
            LD_IMM => self.a = k,
            LD_W_ABS => self.a = self.absolute::<4>(k)?,
            LD_H_ABS => self.a = self.absolute::<2>(k)?,
            LD_B_ABS => self.a = self.absolute::<1>(k)?,
            LD_W_IND => self.a = self.indirect::<4>(k)?,
            LD_H_IND => self.a = self.indirect::<2>(k)?,
            LD_B_IND => self.a = self.indirect::<1>(k)?,
            LD_MEM => self.a = *self.memory.get(k as usize)?,
            LD_W_LEN => self.a = self.packet.wire_len(),
            LDX_IMM => self.x = k,
            LDX_MEM => self.x = *self.memory.get(k as usize)?,
            LDX_W_LEN => self.x = self.packet.wire_len(),
            // The length of the IPv4 header.
            LDX_B_MSH => self.x = u32::from(self.packet.bytes::<1>(k)?[0] & 0x0f) << 2,
            ST => *self.memory.get_mut(k as usize)? = self.a,
            STX => *self.memory.get_mut(k as usize)? = self.x,
            MISC_TAX => self.x = self.a,
            MISC_TXA => self.a = self.x,
            _ => return None,
        }
        Some(())
    }

    #[inline]
    fn absolute<const N: usize>(&self, at: u32) -> Option<u32> {
        if at >= SKF_AD_OFF {
            return self.packet.ancillary(at - SKF_AD_OFF, self.a, self.x);
        }
        self.packet.bytes::<N>(at).map(number)
    }

    /// Loads from the packet at X + k. Even if the sum is an offset of metadata (from
    /// [`SKF_AD_OFF`] on), this load reads no metadata: it rejects the packet.
    #[inline]
    fn indirect<const N: usize>(&self, k: u32) -> Option<u32> {
        let at = self.x.checked_add(k).filter(|&at| at < SKF_AD_OFF)?;
        self.packet.bytes::<N>(at).map(number)
    }
}

#[inline]
fn number<const N: usize>(bytes: [u8; N]) -> u32 {
    let append = |value, byte| (value << 8) | u32::from(byte);
    bytes.into_iter().fold(0, append)
}
