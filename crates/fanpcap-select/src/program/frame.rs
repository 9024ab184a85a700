//! The fast path: reads IPv4 without options, and IPv6, in place after the Ethernet header.

use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;

use super::code::{offset, reach};
use super::hash::{Word, hash};
use crate::digest::{PAYLOAD, V4, V6};

const LINK: usize = 14;
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
/// Number of payload bytes that are read, rounded up because the BPF program reads whole words.
const READ: usize = PAYLOAD.next_multiple_of(4);

/// The value that the BPF program reads from a header that contains `number`, without a byte swap.
pub(super) fn raw(number: u16) -> i32 {
    i32::from(number.to_be())
}

/// Hashes a packet's content into r8, and jumps to `keyed`. Does not jump if a byte to be hashed is
/// missing or does not belong to the packet.
pub(super) fn by_content(asm: &mut Assembler, initial: u32, keyed: Label) {
    let [six, slow] = asm.labels();
    head(asm, LINK + V4_HEADER + READ, slow);
    asm.load(Width::Half, R3, R1, 12);
    asm.jump_if(R3.is(raw(0x86dd)), six);
    asm.jump_if(R3.is_not(raw(0x0800)), slow);
    asm.load(Width::Byte, R3, R1, 14);
    asm.jump_if(R3.is_not(0x45), slow);
    long_enough(asm, 16, V4_HEADER + PAYLOAD, slow);
    asm.set(R7, R1);
    let fields = [18, 26, 30, 34, 38, 42].map(|at| Word::whole(R7, at));
    hash(asm, &fields, V4, initial);
    done(asm, keyed);
    asm.bind(six);
    reach(asm, LINK + V6_HEADER + READ, R3, slow);
    asm.load(Width::Byte, R3, R1, 14);
    asm.alu(Op::And, R3, 0xf0);
    asm.jump_if(R3.is_not(0x60), slow);
    long_enough(asm, 18, PAYLOAD, slow);
    asm.set(R7, R1);
    let lengths = Word {
        bytes: 3,
        ..Word::whole(R7, 18)
    };
    let behind = (22..66).step_by(4).map(|at| Word::whole(R7, at));
    let fields: Vec<Word> = std::iter::once(lengths).chain(behind).collect();
    hash(asm, &fields, V6, initial);
    done(asm, keyed);
    asm.bind(slow);
}

/// Hashes an IPv4 packet's identification into r8 and jumps to `keyed`, if it is not 0.
pub(super) fn by_identification(asm: &mut Assembler, initial: u32, keyed: Label) {
    let slow = asm.label();
    head(asm, LINK + V4_HEADER, slow);
    asm.load(Width::Half, R3, R1, 12);
    asm.jump_if(R3.is_not(raw(0x0800)), slow);
    asm.load(Width::Byte, R3, R1, 14);
    asm.jump_if(R3.is_not(0x45), slow);
    asm.load(Width::Half, R3, R1, 18);
    asm.jump_if(R3.is(0), slow);
    asm.set(R7, R1);
    let field = Word {
        bytes: 2,
        ..Word::whole(R7, 18)
    };
    hash(asm, &[field], 2, initial);
    done(asm, keyed);
    asm.bind(slow);
}

/// Loads the frame's beginning into r1 and its end into r2. Jumps to `beyond` if the frame has
/// fewer than `len` bytes.
pub(super) fn head(asm: &mut Assembler, len: usize, beyond: Label) {
    asm.load(Width::Word, R1, R6, xdp::DATA);
    asm.load(Width::Word, R2, R6, xdp::DATA_END);
    reach(asm, len, R3, beyond);
}

/// Jumps to `short` if the length field at `at` in the frame is less than `len`.
fn long_enough(asm: &mut Assembler, at: i16, len: usize, short: Label) {
    asm.load_big_endian(Width::Half, R4, R1, at);
    asm.jump_if(R4.below(offset(len)), short);
}

fn done(asm: &mut Assembler, keyed: Label) {
    asm.set(R8, R3);
    asm.jump(keyed);
}
