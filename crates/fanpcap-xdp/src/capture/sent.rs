//! What differs for packets that the host sends. The context is `struct __sk_buff`, and the
//! outermost VLAN tag may be beside the frame.

use super::{KEY, LEDGER, look_up};
use crate::layout::record::{self, DATA};
use crate::layout::{Lanes, ledger, row};
use fanpcap_bpf::assembler::{
    Assembler, If, Label, Op, R0, R1, R2, R3, R4, R6, R7, R8, R9, R10, Width,
};

/// Bytes of a tag, and where it is in a frame.
const TAG_LEN: i32 = 4;
const TAG_AT: i16 = 12;

/// Ends the BPF program if no member of the group wants sent packets.
pub(super) fn arrive(asm: &mut Assembler, lanes: Lanes) {
    let (wanted, unwanted) = (asm.label(), asm.label());
    asm.store(Width::Word, R10, KEY, lanes.received() as i32);
    look_up(asm, LEDGER, KEY);
    asm.jump_if(If::Equal, R0, 0, unwanted);
    asm.load(Width::Word, R1, R0, ledger::WANTS_SENT);
    asm.jump_if(If::NotEqual, R1, 0, wanted);
    asm.bind(unwanted);
    leave(asm);
    asm.bind(wanted);
}

/// Ends the BPF program: the packet goes on.
pub(super) fn leave(asm: &mut Assembler) {
    asm.set(R0, TCX_NEXT);
    asm.exit();
}

/// Jumps if the slot's member has sent the packet itself: r6 is the context, r7 the slot's row.
pub(super) fn refuse_own(asm: &mut Assembler, own: Label) {
    let others = asm.label();
    asm.set(R1, R6);
    asm.call(GET_SOCKET_COOKIE);
    // A packet that the host forwards has no socket.
    asm.jump_if(If::Equal, R0, 0, others);
    asm.load(Width::Double, R1, R7, row::SOCKET);
    asm.jump_if(If::Equal, R0, R1, own);
    asm.bind(others);
}

/// Puts the frame's length on the wire into r0.
pub(super) fn length(asm: &mut Assembler) {
    let done = asm.label();
    asm.load(Width::Word, R0, R6, LEN);
    asm.load(Width::Word, R1, R6, VLAN_PRESENT);
    asm.jump_if(If::Equal, R1, 0, done);
    asm.alu(Op::Add, R0, TAG_LEN);
    asm.bind(done);
}

/// Writes the record's queue. Puts its flags into r1.
pub(super) fn flags(asm: &mut Assembler) {
    let untagged = asm.label();
    asm.store(Width::Half, R9, record::QUEUE, 0);
    asm.load(Width::Word, R2, R6, VLAN_PRESENT);
    asm.set(R1, OUTGOING);
    asm.jump_if(If::Equal, R2, 0, untagged);
    asm.set(R1, OUTGOING | TAGGED);
    asm.bind(untagged);
}

/// Copies r8 bytes of the frame to the record in r9, with its outermost tag. If the helper fails,
/// which can't happen, discards the record and jumps to `failed`.
pub(super) fn copy(asm: &mut Assembler, failed: Label) {
    let (tagged, discard, done) = (asm.label(), asm.label(), asm.label());
    asm.load(Width::Word, R1, R6, VLAN_PRESENT);
    asm.jump_if(If::NotEqual, R1, 0, tagged);
    asm.set(R4, R8);
    part(asm, 0, 0);
    asm.jump_if(If::Equal, R0, 0, done);
    asm.jump(discard);
    asm.bind(tagged);
    asm.set(R4, i32::from(TAG_AT));
    part(asm, 0, 0);
    asm.jump_if(If::NotEqual, R0, 0, discard);
    asm.load(Width::Word, R1, R6, VLAN_PROTO);
    asm.store(Width::Half, R9, DATA + TAG_AT, R1);
    asm.load(Width::Word, R1, R6, VLAN_TCI);
    asm.big_endian(R1, 16);
    asm.store(Width::Half, R9, DATA + TAG_AT + 2, R1);
    // The smallest record has room for the tag, however few bytes are kept.
    asm.jump_if(If::LessEqual, R8, i32::from(TAG_AT) + TAG_LEN, done);
    asm.set(R4, R8);
    asm.alu(Op::Sub, R4, i32::from(TAG_AT) + TAG_LEN);
    part(asm, TAG_AT, TAG_LEN);
    asm.jump_if(If::Equal, R0, 0, done);
    asm.bind(discard);
    asm.set(R1, R9);
    asm.set(R2, 0);
    asm.call(RINGBUF_DISCARD);
    asm.jump(failed);
    asm.bind(done);
}

/// Copies r4 bytes of the frame at offset `from`, to offset `from + further` in the record.
fn part(asm: &mut Assembler, from: i16, further: i32) {
    asm.set(R1, R6);
    asm.set(R2, i32::from(from));
    asm.set(R3, R9);
    asm.alu(Op::Add, R3, i32::from(DATA + from) + further);
    asm.call(SKB_LOAD_BYTES);
}

/// The record's flags.
const OUTGOING: i32 = 1;
const TAGGED: i32 = 2;

// linux/bpf.h, struct __sk_buff.
const LEN: i16 = 0;
const VLAN_PRESENT: i16 = 20;
const VLAN_TCI: i16 = 24;
const VLAN_PROTO: i16 = 28;

// linux/bpf.h, enum tcx_action_base and enum bpf_func_id.
const TCX_NEXT: i32 = -1;
const SKB_LOAD_BYTES: i32 = 26;
const GET_SOCKET_COOKIE: i32 = 46;
const RINGBUF_DISCARD: i32 = 133;
