//! Opcodes of classic BPF, built from the parts in linux/bpf_common.h. Their names are the kernel's
//! names until 3.14, without `BPF_S_`: `BPF_S_LD_W_ABS` in linux/filter.h is [`LD_W_ABS`] here.
//!
//! A is the accumulator, X the index register, M the scratch memory, P the packet.

/// The bits of an opcode that contain its class.
pub const CLASS: u16 = 0x07;
/// The bits of a load that contain its size.
pub const SIZE: u16 = 0x18;
/// The bits of a load that contain its mode.
pub const MODE: u16 = 0xe0;

/// Class: loads A.
pub const LD: u16 = 0x00;
/// Class: loads X.
pub const LDX: u16 = 0x01;
/// Class and opcode: `M[k] = A`.
pub const ST: u16 = 0x02;
/// Class and opcode: `M[k] = X`.
pub const STX: u16 = 0x03;
/// Class: computes A.
pub const ALU: u16 = 0x04;
/// Class: jumps.
pub const JMP: u16 = 0x05;
/// Class: ends the BPF program.
pub const RET: u16 = 0x06;
/// Class: moves between A and X.
pub const MISC: u16 = 0x07;

/// Size: four bytes.
pub const W: u16 = 0x00;
/// Size: two bytes.
pub const H: u16 = 0x08;
/// Size: one byte.
pub const B: u16 = 0x10;

/// Mode: a constant.
pub const IMM: u16 = 0x00;
/// Mode: the packet at k.
pub const ABS: u16 = 0x20;
/// Mode: the packet at X + k.
pub const IND: u16 = 0x40;
/// Mode: scratch memory.
pub const MEM: u16 = 0x60;
/// Mode: the packet's length.
pub const LEN: u16 = 0x80;
/// Mode: the length of the IPv4 header at k.
pub const MSH: u16 = 0xa0;

/// The operand is k.
pub const K: u16 = 0x00;
/// The operand is X: `ALU_ADD_K | X` is the kernel's `ALU_ADD_X`.
pub const X: u16 = 0x08;

/// `A = k`
pub const LD_IMM: u16 = LD | IMM;
/// `A = P[k:4]`
pub const LD_W_ABS: u16 = LD | W | ABS;
/// `A = P[k:2]`
pub const LD_H_ABS: u16 = LD | H | ABS;
/// `A = P[k:1]`
pub const LD_B_ABS: u16 = LD | B | ABS;
/// `A = P[X + k:4]`
pub const LD_W_IND: u16 = LD | W | IND;
/// `A = P[X + k:2]`
pub const LD_H_IND: u16 = LD | H | IND;
/// `A = P[X + k:1]`
pub const LD_B_IND: u16 = LD | B | IND;
/// `A = M[k]`
pub const LD_MEM: u16 = LD | MEM;
/// `A = length of P`
pub const LD_W_LEN: u16 = LD | W | LEN;
/// `X = k`
pub const LDX_IMM: u16 = LDX | IMM;
/// `X = M[k]`
pub const LDX_MEM: u16 = LDX | MEM;
/// `X = length of P`
pub const LDX_W_LEN: u16 = LDX | W | LEN;
/// `X = 4 * (P[k:1] & 15)`: the length of the IPv4 header at k.
pub const LDX_B_MSH: u16 = LDX | B | MSH;

/// `A += k`
pub const ALU_ADD_K: u16 = ALU | K;
/// `A -= k`
pub const ALU_SUB_K: u16 = ALU | 0x10 | K;
/// `A *= k`
pub const ALU_MUL_K: u16 = ALU | 0x20 | K;
/// `A /= k`
pub const ALU_DIV_K: u16 = ALU | 0x30 | K;
/// `A |= k`
pub const ALU_OR_K: u16 = ALU | 0x40 | K;
/// `A &= k`
pub const ALU_AND_K: u16 = ALU | 0x50 | K;
/// `A <<= k`
pub const ALU_LSH_K: u16 = ALU | 0x60 | K;
/// `A >>= k`
pub const ALU_RSH_K: u16 = ALU | 0x70 | K;
/// `A = -A`
pub const ALU_NEG: u16 = ALU | 0x80;
/// `A %= k`
pub const ALU_MOD_K: u16 = ALU | 0x90 | K;
/// `A ^= k`
pub const ALU_XOR_K: u16 = ALU | 0xa0 | K;

/// Jumps over k instructions.
pub const JMP_JA: u16 = JMP;
/// `A == k`
pub const JMP_JEQ_K: u16 = JMP | 0x10 | K;
/// `A > k`
pub const JMP_JGT_K: u16 = JMP | 0x20 | K;
/// `A >= k`
pub const JMP_JGE_K: u16 = JMP | 0x30 | K;
/// `A & k != 0`
pub const JMP_JSET_K: u16 = JMP | 0x40 | K;

/// Keeps k bytes of the packet.
pub const RET_K: u16 = RET | K;
/// Keeps A bytes of the packet.
pub const RET_A: u16 = RET | 0x10;
/// `X = A`
pub const MISC_TAX: u16 = MISC;
/// `A = X`
pub const MISC_TXA: u16 = MISC | 0x80;
