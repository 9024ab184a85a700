//! The parts of the capture that differ for packets that the host sends. The context of the BPF
//! program is `struct __sk_buff`. The kernel may store the outermost VLAN tag beside the frame.

use super::copy::bound;
use super::{KEY, LEDGER, look_up};
use crate::layout::{ledger, row};
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use fanpcap_ring::pool::layout::record::{self, DATA, OUTGOING, TAGGED};

/// Bytes of a tag, and the offset of a tag in a frame.
const TAG_LEN: i32 = 4;
const TAG_AT: i16 = 12;

/// Ends the BPF program if no member of the group wants sent packets.
pub(super) fn arrive(asm: &mut Assembler) {
    let wanted = asm.label();
    asm.store(Width::Word, R10, KEY, 0);
    look_up(asm, LEDGER, KEY);
    asm.unless(R0.is(0), |asm| {
        asm.load(Width::Word, R1, R0, ledger::WANTS_SENT);
        asm.jump_if(R1.is_not(0), wanted);
    });
    leave(asm);
    asm.bind(wanted);
}

/// Ends the BPF program. The kernel then continues with the packet.
pub(super) fn leave(asm: &mut Assembler) {
    asm.exit_with(TCX_NEXT);
}

/// Jumps to `own` if the slot's member has sent the packet. Expects the context in r6 and the
/// slot's row in r7.
pub(super) fn refuse_own(asm: &mut Assembler, own: Label) {
    asm.call(GET_SOCKET_COOKIE, (R6,));
    // The cookie is 0 if the packet has no socket, such as a packet that the host forwards.
    asm.unless(R0.is(0), |asm| {
        asm.load(Width::Double, R1, R7, row::SOCKET);
        asm.jump_if(R0.is(R1), own);
    });
}

/// Puts the frame's length on the wire into r0. This length includes a tag beside the frame.
pub(super) fn length(asm: &mut Assembler) {
    asm.load(Width::Word, R0, R6, skb::LEN);
    asm.load(Width::Word, R1, R6, skb::VLAN_PRESENT);
    asm.unless(R1.is(0), |asm| asm.alu(Op::Add, R0, TAG_LEN));
}

/// Writes the record's queue, which is 0. Puts the record's flags into r1.
pub(super) fn flags(asm: &mut Assembler) {
    asm.store(Width::Half, R9, record::QUEUE, 0);
    asm.load(Width::Word, R2, R6, skb::VLAN_PRESENT);
    asm.set(R1, i32::from(OUTGOING));
    asm.unless(R2.is(0), |asm| asm.set(R1, i32::from(OUTGOING | TAGGED)));
}

/// Copies r8 bytes of the frame, at most `most`, to the record in r9. Inserts a tag that is stored
/// beside the frame. If the helper fails, which can't happen, jumps to `failed`.
pub(super) fn copy(asm: &mut Assembler, most: i32, failed: Label) {
    let done = asm.label();
    asm.load(Width::Word, R1, R6, skb::VLAN_PRESENT);
    asm.when(R1.is(0), |asm| {
        bound(asm, most, failed);
        asm.set(R4, R8);
        part(asm, 0, 0);
        asm.branch(R0.is(0), done, failed);
    });
    asm.set(R4, i32::from(TAG_AT));
    part(asm, 0, 0);
    asm.jump_if(R0.is_not(0), failed);
    asm.load(Width::Word, R1, R6, skb::VLAN_PROTO);
    asm.store(Width::Half, R9, DATA + TAG_AT, R1);
    asm.load(Width::Word, R1, R6, skb::VLAN_TCI);
    asm.big_endian(R1, 16);
    asm.store(Width::Half, R9, DATA + TAG_AT + 2, R1);
    // The tag was written even if it is beyond the first r8 bytes: the block has room for the tag.
    bound(asm, most, failed);
    asm.jump_if(R8.at_most(i32::from(TAG_AT) + TAG_LEN), done);
    asm.set(R4, R8 - (i32::from(TAG_AT) + TAG_LEN));
    part(asm, TAG_AT, TAG_LEN);
    asm.jump_if(R0.is_not(0), failed);
    asm.bind(done);
}

/// Copies r4 bytes of the frame at offset `from` to offset `from + further` of the record.
fn part(asm: &mut Assembler, from: i16, further: i32) {
    let to = R9 + (i32::from(DATA + from) + further);
    asm.call(SKB_LOAD_BYTES, (R6, i32::from(from), to));
}
