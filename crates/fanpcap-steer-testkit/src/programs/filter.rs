//! Draws pcap filters: some as libpcap makes them, and any that a checker of classic BPF accepts.

use fanpcap_bpf::Classic;
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

/// A classic BPF program.
pub fn classic(draw: &mut Draw<'_>) -> Vec<Classic> {
    match draw.weighted(&[20, 30, 20, 10, 50]) {
        0 => ether_type(draw),
        1 => destination_port(draw),
        2 => tag(draw),
        3 => length(draw),
        _ => any(draw),
    }
}

/// `ether proto N`
fn ether_type(draw: &mut Draw<'_>) -> Vec<Classic> {
    let number = pools::ether_type(draw).into();
    vec![op(0x28, 12), jump(0x15, number, 0, 1), TAKE, REJECT]
}

/// `ip and P dst port N`
fn destination_port(draw: &mut Draw<'_>) -> Vec<Classic> {
    let protocol = draw.pick(&[6, 17, 132]);
    vec![
        op(0x28, 12),
        jump(0x15, 0x0800, 0, 8),
        op(0x30, 23),
        jump(0x15, protocol, 0, 6),
        op(0x28, 20),
        jump(0x45, 0x1fff, 4, 0),
        op(0xb1, 14),
        op(0x48, 16),
        jump(0x15, pools::port(draw).into(), 0, 1),
        TAKE,
        REJECT,
    ]
}

/// `vlan N`
fn tag(draw: &mut Draw<'_>) -> Vec<Classic> {
    vec![
        op(0x28, 12),
        jump(0x15, 0x8100, 2, 0),
        jump(0x15, 0x88a8, 1, 0),
        jump(0x15, 0x9100, 0, 4),
        op(0x28, 14),
        op(0x54, 0x0fff),
        jump(0x15, pools::vlan(draw).into(), 0, 1),
        TAKE,
        REJECT,
    ]
}

/// `greater N`
fn length(draw: &mut Draw<'_>) -> Vec<Classic> {
    let number = draw.pick(&[60, 64, 54, 100]);
    vec![op(0x80, 0), jump(0x35, number, 0, 1), TAKE, REJECT]
}

/// Straight-line code or forward jumps, with all operations; memory is written before it is read.
fn any(draw: &mut Draw<'_>) -> Vec<Classic> {
    let mut code = vec![op(0x00, draw.u32()), op(0x02, 0), op(0x02, 1), op(0x02, 15)];
    let count = 1 + draw.below(14);
    for left in (0..count).rev() {
        code.push(instruction(draw, left));
    }
    code.push(draw.pick(&[op(0x16, 0), TAKE, op(0x06, 1)]));
    code
}

/// An instruction with `left` others between it and the last.
fn instruction(draw: &mut Draw<'_>, left: usize) -> Classic {
    const ARITHMETIC: [u16; 8] = [0x00, 0x10, 0x20, 0x40, 0x50, 0xa0, 0x30, 0x90];
    const CONDITIONS: [u16; 4] = [0x10, 0x20, 0x30, 0x40];
    let source = draw.pick(&[0x00, 0x08]);
    let number = draw.pick(&[12, 14, 1, 2, 0x0800, 0x1fff, 20, 40, 60, 0xffff_ffff]);
    let mut by = || u8::try_from(draw.below(left + 1)).unwrap_or(0);
    let (jt, jf) = (by(), by());
    match draw.weighted(&[40, 16, 20, 6, 6, 6, 6, 6, 30, 8, 4, 30, 6]) {
        0 => op(draw.pick(&[0x20, 0x28, 0x30]), place(draw)),
        1 => op(draw.pick(&[0x40, 0x48, 0x50]), place(draw)),
        2 => op(0xb1, draw.pick(&[14, 18, 0, 22, 200])),
        3 => op(draw.pick(&[0x00, 0x01]), number),
        4 => op(draw.pick(&[0x60, 0x61]), draw.pick(&[0, 1, 15])),
        5 => op(draw.pick(&[0x80, 0x81]), 0),
        6 => op(draw.pick(&[0x02, 0x03]), draw.pick(&[0, 1, 15])),
        7 => op(draw.pick(&[0x07, 0x87]), 0),
        8 => op(0x04 | source | draw.pick(&ARITHMETIC), number),
        9 => op(
            draw.pick(&[0x64, 0x74, 0x6c, 0x7c]),
            draw.pick(&[1, 2, 8, 31, 0]),
        ),
        10 => op(0x84, 0),
        11 => jump(0x05 | source | draw.pick(&CONDITIONS), number, jt, jf),
        _ => op(0x05, jt.into()),
    }
}

/// Offset of a load: mostly in the headers, sometimes at a frame's end.
fn place(draw: &mut Draw<'_>) -> u32 {
    if draw.one_in(12) {
        return draw.pick(&[100, 1500, 65_535, 0x7fff_ffff, 0xffff_efff]);
    }
    u32::from(draw.byte() % 60)
}
