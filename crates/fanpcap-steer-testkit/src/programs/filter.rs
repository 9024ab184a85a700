//! Draws pcap filters. Some filters have the code into which libpcap compiles an expression. The
//! others are any code that a checker of classic BPF accepts.

use fanpcap_bpf::Classic;
use fanpcap_bpf::classic::opcode::*;
use fanpcap_steer::ir::{Filter, Predicate};

use super::Maker;
use crate::{Draw, pools};

const TAKE: Classic = Classic::keep(262_144);
const REJECT: Classic = Classic::keep(0);

const fn op(code: u16, k: u32) -> Classic {
    Classic::new(code, k)
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Classic {
    Classic::jump(code, k, jt, jf)
}

impl Maker<'_, '_> {
    pub(super) fn filter(&mut self) -> Predicate {
        self.filters.push(Filter {
            text: format!("generated {}", self.filters.len()),
            code: classic(self.draw),
        });
        Predicate::Pcap(self.filters.len() - 1)
    }
}

/// Draws a classic BPF program: the code of a pcap expression by one of the functions below, or any
/// code.
pub fn classic(draw: &mut Draw<'_>) -> Vec<Classic> {
    match draw.weighted(&[20, 30, 20, 10, 50]) {
        0 => ether_type(draw),
        1 => destination_port(draw),
        2 => tag(draw),
        3 => length(draw),
        _ => any(draw),
    }
}

/// The code of `ether proto N`.
fn ether_type(draw: &mut Draw<'_>) -> Vec<Classic> {
    let number = pools::ether_type(draw).into();
    vec![
        op(LD_H_ABS, 12),
        jump(JMP_JEQ_K, number, 0, 1),
        TAKE,
        REJECT,
    ]
}

/// The code of `ip and P dst port N`.
fn destination_port(draw: &mut Draw<'_>) -> Vec<Classic> {
    let protocol = draw.pick(&[6, 17, 132]);
    vec![
        op(LD_H_ABS, 12),
        jump(JMP_JEQ_K, 0x0800, 0, 8),
        op(LD_B_ABS, 23),
        jump(JMP_JEQ_K, protocol, 0, 6),
        op(LD_H_ABS, 20),
        jump(JMP_JSET_K, 0x1fff, 4, 0),
        op(LDX_B_MSH, 14),
        op(LD_H_IND, 16),
        jump(JMP_JEQ_K, pools::port(draw).into(), 0, 1),
        TAKE,
        REJECT,
    ]
}

/// The code of `vlan N`.
fn tag(draw: &mut Draw<'_>) -> Vec<Classic> {
    vec![
        op(LD_H_ABS, 12),
        jump(JMP_JEQ_K, 0x8100, 2, 0),
        jump(JMP_JEQ_K, 0x88a8, 1, 0),
        jump(JMP_JEQ_K, 0x9100, 0, 4),
        op(LD_H_ABS, 14),
        op(ALU_AND_K, 0x0fff),
        jump(JMP_JEQ_K, pools::vlan(draw).into(), 0, 1),
        TAKE,
        REJECT,
    ]
}

/// The code of `greater N`.
fn length(draw: &mut Draw<'_>) -> Vec<Classic> {
    let number = draw.pick(&[60, 64, 54, 100]);
    vec![op(LD_W_LEN, 0), jump(JMP_JGE_K, number, 0, 1), TAKE, REJECT]
}

/// Any code with all operations and forward jumps. The code writes scratch memory before it reads
/// it.
fn any(draw: &mut Draw<'_>) -> Vec<Classic> {
    let mut code = vec![op(LD_IMM, draw.u32()), op(ST, 0), op(ST, 1), op(ST, 15)];
    let count = 1 + draw.below(14);
    for left in (0..count).rev() {
        code.push(instruction(draw, left));
    }
    code.push(draw.pick(&[op(RET_A, 0), TAKE, op(RET_K, 1)]));
    code
}

/// Draws an instruction. `left` other instructions follow before the last one, so a jump can skip
/// up to `left` instructions.
fn instruction(draw: &mut Draw<'_>, left: usize) -> Classic {
    const ARITHMETIC: [u16; 8] = [
        ALU_ADD_K, ALU_SUB_K, ALU_MUL_K, ALU_OR_K, ALU_AND_K, ALU_XOR_K, ALU_DIV_K, ALU_MOD_K,
    ];
    const CONDITIONS: [u16; 4] = [JMP_JEQ_K, JMP_JGT_K, JMP_JGE_K, JMP_JSET_K];
    let source = draw.pick(&[K, X]);
    let number = draw.pick(&[12, 14, 1, 2, 0x0800, 0x1fff, 20, 40, 60, 0xffff_ffff]);
    let mut by = || u8::try_from(draw.below(left + 1)).unwrap_or(0);
    let (jt, jf) = (by(), by());
    match draw.weighted(&[40, 16, 20, 6, 6, 6, 6, 6, 30, 8, 4, 30, 6]) {
        0 => op(draw.pick(&[LD_W_ABS, LD_H_ABS, LD_B_ABS]), place(draw)),
        1 => op(draw.pick(&[LD_W_IND, LD_H_IND, LD_B_IND]), place(draw)),
        2 => op(LDX_B_MSH, draw.pick(&[14, 18, 0, 22, 200])),
        3 => op(draw.pick(&[LD_IMM, LDX_IMM]), number),
        4 => op(draw.pick(&[LD_MEM, LDX_MEM]), draw.pick(&[0, 1, 15])),
        5 => op(draw.pick(&[LD_W_LEN, LDX_W_LEN]), 0),
        6 => op(draw.pick(&[ST, STX]), draw.pick(&[0, 1, 15])),
        7 => op(draw.pick(&[MISC_TAX, MISC_TXA]), 0),
        8 => op(source | draw.pick(&ARITHMETIC), number),
        9 => op(
            draw.pick(&[ALU_LSH_K, ALU_RSH_K, ALU_LSH_K | X, ALU_RSH_K | X]),
            draw.pick(&[1, 2, 8, 31, 0]),
        ),
        10 => op(ALU_NEG, 0),
        11 => jump(source | draw.pick(&CONDITIONS), number, jt, jf),
        _ => op(JMP_JA, jt.into()),
    }
}

/// The offset of a load. Most offsets are in the headers, some at a frame's end or far beyond it.
fn place(draw: &mut Draw<'_>) -> u32 {
    if draw.one_in(12) {
        return draw.pick(&[100, 1500, 65_535, 0x7fff_ffff, 0xffff_efff]);
    }
    u32::from(draw.byte() % 60)
}
