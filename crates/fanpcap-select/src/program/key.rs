//! Code that computes the key of any packet, from the headers that the walk has found.

use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use fanpcap_steer::ebpf::{KEYED_IPV4, KEYED_IPV6};

use super::Program;
use super::code::offset;
use super::hash::{Word, hash};
use crate::digest::{OTHER, PAYLOAD, V4, V6};
use crate::{Key, layout::counts};

/// Positions on the stack: the key, a header, and a frame's length.
const KEY: i16 = -56;
const HEADER: i16 = -96;
const LEN: i16 = -104;

impl Program {
    /// If the nodes select by identification and the packet has an identification, jumps to `keyed`
    /// with the hash of the identification in r8. Counts packets that lack the fields of the
    /// selection's key.
    pub(super) fn own_key(&self, asm: &mut Assembler, keyed: Label) {
        let [none, ip] = asm.labels();
        match self.selection.key {
            Key::Identification => self.identification(asm, keyed, none),
            Key::Packet | Key::Flow | Key::RoundRobin => {
                asm.jump_if(R7.has_any(KEYED_IPV4 | KEYED_IPV6), ip);
            }
        }
        asm.bind(none);
        self.count(asm, counts::OTHERS);
        asm.bind(ip);
    }

    fn identification(&self, asm: &mut Assembler, keyed: Label, none: Label) {
        let four = asm.label();
        asm.branch(R7.has_any(KEYED_IPV4), four, none);
        asm.bind(four);
        // The hash reads a whole word, of which the identification fills only two bytes.
        asm.store(Width::Word, R10, HEADER, 0);
        asm.set(R2, R8 + 4);
        load(asm, 2, HEADER, none);
        asm.load(Width::Word, R1, R10, HEADER);
        asm.jump_if(R1.is(0), none);
        hash(asm, &[Word::whole(R10, HEADER)], 2, self.selection.initial);
        asm.set(R8, R3);
        asm.jump(keyed);
    }
}

/// Puts the hash of a packet's content into r8.
pub(super) fn by_content(program: &Program, asm: &mut Assembler) {
    let [four, six, done] = asm.labels();
    let initial = program.selection.initial;
    for at in (KEY..0).step_by(8) {
        asm.store(Width::Double, R10, at, 0);
    }
    asm.call(XDP_GET_BUFF_LEN, (R6,));
    asm.store(Width::Double, R10, LEN, R0);
    asm.jump_if(R7.has_any(KEYED_IPV4), four);
    asm.jump_if(R7.has_any(KEYED_IPV6), six);
    link(asm);
    hash_of(asm, OTHER, initial, done);
    asm.bind(four);
    v4(asm);
    hash_of(asm, V4, initial, done);
    asm.bind(six);
    v6(asm);
    hash_of(asm, V6, initial, done);
    asm.bind(done);
    asm.set(R8, R3);
}

fn hash_of(asm: &mut Assembler, len: usize, initial: u32, done: Label) {
    let words = (KEY..).step_by(4).take(len.div_ceil(4));
    let words: Vec<Word> = words.map(|at| Word::whole(R10, at)).collect();
    hash(asm, &words, len, initial);
    asm.jump(done);
}

/// Writes the key of a non-IP packet: the Ethernet addresses, and the bytes from the type (r8) on.
fn link(asm: &mut Assembler) {
    let short = asm.label();
    asm.set(R2, 0);
    load(asm, 12, KEY, short);
    asm.bind(short);
    asm.set(R9, offset(2 + PAYLOAD));
    payload(asm, 2 + PAYLOAD, KEY + 12);
}

fn v4(asm: &mut Assembler) {
    let [cut, done] = asm.labels();
    asm.set(R2, R8);
    load(asm, 20, HEADER, cut);
    for (from, to) in [(4, 0), (12, 4), (16, 8)] {
        copy(asm, HEADER + from, KEY + to);
    }
    asm.load(Width::Byte, R1, R10, HEADER);
    asm.set(R1, (R1 & 15) << 2);
    asm.alu(Op::Add, R8, R1);
    asm.load_big_endian(Width::Half, R9, R10, HEADER + 2);
    asm.jump_if(R9.at_most(R1), done);
    asm.alu(Op::Sub, R9, R1);
    payload(asm, PAYLOAD, KEY + 12);
    // The walk has found a complete header, so at run time nothing jumps to `cut`.
    asm.bind(cut);
    asm.bind(done);
}

fn v6(asm: &mut Assembler) {
    let cut = asm.label();
    asm.set(R2, R8);
    load(asm, 40, HEADER, cut);
    for at in (4..40).step_by(4) {
        copy(asm, HEADER + at, KEY + at - 4);
    }
    // Routers change the hop limit, so the key has 0 instead of the hop limit.
    asm.store(Width::Byte, R10, KEY + 3, 0);
    asm.alu(Op::Add, R8, 40);
    asm.load_big_endian(Width::Half, R9, R10, HEADER + 4);
    payload(asm, PAYLOAD, KEY + 36);
    asm.bind(cut);
}

/// Copies a word within the stack.
fn copy(asm: &mut Assembler, from: i16, to: i16) {
    asm.load(Width::Word, R1, R10, from);
    asm.store(Width::Word, R10, to, R1);
}

/// Copies bytes from offset r8 of the frame to the stack: at most `most` bytes, at most r9 bytes,
/// and only bytes that the frame has.
fn payload(asm: &mut Assembler, most: usize, to: i16) {
    let none = asm.label();
    asm.load(Width::Double, R4, R10, LEN);
    asm.jump_if(R4.at_most(R8), none);
    asm.alu(Op::Sub, R4, R8);
    asm.when(R4.above(R9), |asm| asm.set(R4, R9));
    asm.when(R4.above(offset(most)), |asm| asm.set(R4, offset(most)));
    asm.jump_if(R4.below(1), none);
    asm.set(R2, R8);
    load_bytes(asm, to);
    asm.bind(none);
}

/// Copies `len` bytes from the frame's offset r2 to the stack, or jumps to `missing`.
fn load(asm: &mut Assembler, len: i32, to: i16, missing: Label) {
    asm.set(R4, len);
    load_bytes(asm, to);
    asm.jump_if(R0.is_not(0), missing);
}

/// Copies r4 bytes from offset r2 of the frame to the stack.
fn load_bytes(asm: &mut Assembler, to: i16) {
    asm.call(XDP_LOAD_BYTES, (R6, R2, stack(to)));
}
