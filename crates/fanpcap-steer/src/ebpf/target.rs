//! What differs between the hooks: how the frame is read, and what the kernel knows beside it.

use super::assembler::{
    Assembler, If, Label, Op, Operand, R0, R1, R2, R3, R4, R5, R6, R7, R10, Register, Width,
};
use super::view::LATE_START;
use fanpcap_bpf::ProgramKind;

/// Where the program runs. r6 holds its context all the time.
pub(super) trait Target {
    /// Begins a view in r7: [`LATE_START`] or 0. r1 to r5 stay.
    fn begin_view(&self, asm: &mut Assembler);

    /// Loads `len` bytes of the frame, a number or r6 to r9, from the offset in r2, to the stack at
    /// `to`; `again` puts the offset into r2 once more. `viewed` tells that r7 is a view. r0 to r5
    /// are lost. Goes to `missing` where the bytes are not there.
    fn load(
        &self,
        asm: &mut Assembler,
        again: &dyn Fn(&mut Assembler),
        viewed: bool,
        len: Operand,
        to: i16,
        missing: Label,
    );

    /// Makes bytes `from` to `to` of the frame readable at the register and offset that it returns,
    /// which are those of byte 0; those before were asked for by an earlier call. `window` is where
    /// byte 0 would be on the stack.
    fn head(
        &self,
        asm: &mut Assembler,
        from: u8,
        to: u8,
        window: i16,
        missing: Label,
    ) -> (Register, i16);

    /// Loads the frame's first `len` bytes to the stack at `to`, or goes to `missing`. r0 to r5 are
    /// lost.
    fn start(&self, asm: &mut Assembler, len: u8, to: i16, missing: Label);

    /// The tag beside the frame: its TCI to r1, or to `none`. r2 to r5 stay.
    fn tag(&self, asm: &mut Assembler, none: Label);

    /// Its protocol, as a number, to r1; where there is a tag.
    fn tag_type(&self, asm: &mut Assembler);

    /// The packet's mark to r1, or to `none`.
    fn mark(&self, asm: &mut Assembler, none: Label);

    /// The receiving queue to r1, or to `none`.
    fn queue(&self, asm: &mut Assembler, none: Label);

    /// The packet's hash to r1, or to `none`.
    fn hash(&self, asm: &mut Assembler, none: Label);

    /// Length of the frame, without a tag beside it, to r1. r0 to r5 are lost.
    fn length(&self, asm: &mut Assembler);

    /// What loads there.
    fn kind(&self) -> ProgramKind;
}

/// A socket filter: a group's fan-out program, or a member's filter.
///
/// Absolute offsets count from where the stack is just now, which is the network header in a
/// group's program for what was received and the frame's first byte otherwise. So frames are read
/// from the MAC header on; only what lies behind the buffer's linear part, which such loads don't
/// reach (net/core/filter.c, `bpf_skb_load_bytes_relative`), is read by absolute offset.
#[derive(Debug)]
pub(super) struct Socket {
    /// It is the group's program, else a member's filter.
    pub(super) fanout: bool,
}

impl Socket {
    /// Takes from r2 the number of the frame's bytes before those that the buffer begins with. r5
    /// is lost.
    fn subtract_start(&self, asm: &mut Assembler, viewed: bool) {
        if !self.fanout {
            return asm.subtract_start(R2);
        }
        if viewed {
            asm.set(R5, R7);
            asm.alu(Op::Right, R5, LATE_START.trailing_zeros() as i32);
            asm.alu(Op::And, R5, 1);
        } else {
            is_received(asm, R5);
        }
        asm.alu(Op::Mul, R5, ETHERNET_LEN);
        asm.alu(Op::Sub, R2, R5);
    }
}

/// 1 where the frame was received, 0 where it is sent; without a jump, as the verifier would go on
/// both ways. The kernel makes more instructions of the load, and to make room for them takes it as
/// long as the program is.
fn is_received(asm: &mut Assembler, target: Register) {
    asm.load(Width::Word, target, R6, PACKET_TYPE);
    asm.alu(Op::Xor, target, PACKET_OUTGOING);
    asm.alu(Op::Negate, target, 0);
    asm.alu(Op::Right, target, 63);
}

fn destination(asm: &mut Assembler, to: i16, len: Operand) {
    asm.set(R1, R6);
    asm.set(R3, R10);
    asm.alu(Op::Add, R3, i32::from(to));
    asm.set(R4, len);
}

/// Loads bytes of the buffer's linear part.
fn linear(asm: &mut Assembler, from: u8, len: u8, to: i16, missing: Label) {
    asm.set(R2, i32::from(from));
    destination(asm, to, i32::from(len).into());
    asm.set(R5, START_MAC);
    asm.call(SKB_LOAD_BYTES_RELATIVE);
    asm.jump_if(If::NotEqual, R0, 0, missing);
}

impl Target for Socket {
    fn begin_view(&self, asm: &mut Assembler) {
        if self.fanout {
            is_received(asm, R7);
            asm.alu(Op::Left, R7, LATE_START.trailing_zeros() as i32);
        } else {
            asm.set(R7, 0);
        }
    }

    fn load(
        &self,
        asm: &mut Assembler,
        again: &dyn Fn(&mut Assembler),
        viewed: bool,
        len: Operand,
        to: i16,
        missing: Label,
    ) {
        let loaded = asm.label();
        destination(asm, to, len);
        asm.set(R5, START_MAC);
        asm.call(SKB_LOAD_BYTES_RELATIVE);
        asm.jump_if(If::Equal, R0, 0, loaded);
        again(asm);
        self.subtract_start(asm, viewed);
        destination(asm, to, len);
        asm.call(SKB_LOAD_BYTES);
        asm.jump_if(If::NotEqual, R0, 0, missing);
        asm.bind(loaded);
    }

    fn head(
        &self,
        asm: &mut Assembler,
        from: u8,
        to: u8,
        window: i16,
        missing: Label,
    ) -> (Register, i16) {
        linear(asm, from, to - from, window + i16::from(from), missing);
        (R10, window)
    }

    fn start(&self, asm: &mut Assembler, len: u8, to: i16, missing: Label) {
        linear(asm, 0, len, to, missing);
    }

    fn tag(&self, asm: &mut Assembler, none: Label) {
        asm.load(Width::Word, R1, R6, VLAN_PRESENT);
        asm.jump_if(If::Equal, R1, 0, none);
        asm.load(Width::Word, R1, R6, VLAN_TCI);
    }

    fn tag_type(&self, asm: &mut Assembler) {
        asm.load(Width::Word, R1, R6, VLAN_PROTO);
        asm.big_endian(R1, 16);
    }

    fn mark(&self, asm: &mut Assembler, _none: Label) {
        asm.load(Width::Word, R1, R6, MARK);
    }

    fn queue(&self, asm: &mut Assembler, none: Label) {
        // Of what is sent it is the transmit queue, which nobody asks for.
        asm.load(Width::Word, R1, R6, PACKET_TYPE);
        asm.jump_if(If::Equal, R1, PACKET_OUTGOING, none);
        asm.load(Width::Word, R1, R6, QUEUE_MAPPING);
        asm.jump_if(If::Equal, R1, 0, none);
        asm.alu(Op::Sub, R1, 1);
    }

    fn hash(&self, asm: &mut Assembler, none: Label) {
        asm.load(Width::Word, R1, R6, HASH);
        asm.jump_if(If::Equal, R1, 0, none);
    }

    fn length(&self, asm: &mut Assembler) {
        // len = -(-len - start)
        asm.load(Width::Word, R2, R6, LEN);
        asm.alu(Op::Negate, R2, 0);
        self.subtract_start(asm, false);
        asm.alu(Op::Negate, R2, 0);
        asm.set(R1, R2);
    }

    fn kind(&self) -> ProgramKind {
        ProgramKind::SocketFilter
    }
}

/// XDP: the head of the frame is read directly, the rest by `bpf_xdp_load_bytes` (since Linux
/// 5.18), as packet pointers take numbers that are not constant only from who has `CAP_PERFMON`.
#[derive(Debug)]
pub(super) struct Xdp;

impl Target for Xdp {
    fn begin_view(&self, asm: &mut Assembler) {
        asm.set(R7, 0);
    }

    fn load(
        &self,
        asm: &mut Assembler,
        _again: &dyn Fn(&mut Assembler),
        _viewed: bool,
        len: Operand,
        to: i16,
        missing: Label,
    ) {
        asm.set(R1, R6);
        asm.set(R3, R10);
        asm.alu(Op::Add, R3, i32::from(to));
        asm.set(R4, len);
        asm.call(XDP_LOAD_BYTES);
        asm.jump_if(If::NotEqual, R0, 0, missing);
    }

    fn head(
        &self,
        asm: &mut Assembler,
        _from: u8,
        to: u8,
        _window: i16,
        missing: Label,
    ) -> (Register, i16) {
        asm.load(Width::Word, R7, R6, XDP_DATA);
        asm.load(Width::Word, R2, R6, XDP_DATA_END);
        asm.set(R1, R7);
        asm.alu(Op::Add, R1, i32::from(to));
        asm.jump_if(If::Greater, R1, R2, missing);
        (R7, 0)
    }

    fn start(&self, asm: &mut Assembler, len: u8, to: i16, missing: Label) {
        asm.set(R2, 0);
        self.load(asm, &|_| {}, false, i32::from(len).into(), to, missing);
    }

    fn tag(&self, asm: &mut Assembler, none: Label) {
        asm.jump(none);
    }

    fn tag_type(&self, _asm: &mut Assembler) {}

    fn mark(&self, asm: &mut Assembler, none: Label) {
        asm.jump(none);
    }

    fn queue(&self, asm: &mut Assembler, _none: Label) {
        asm.load(Width::Word, R1, R6, XDP_QUEUE);
    }

    fn hash(&self, asm: &mut Assembler, none: Label) {
        asm.jump(none);
    }

    fn length(&self, asm: &mut Assembler) {
        asm.set(R1, R6);
        asm.call(XDP_GET_BUFF_LEN);
        asm.set(R1, R0);
    }

    fn kind(&self) -> ProgramKind {
        ProgramKind::Xdp
    }
}

const ETHERNET_LEN: i32 = 14;
/// linux/if_packet.h.
const PACKET_OUTGOING: i32 = 4;
/// linux/bpf.h, enum bpf_hdr_start_off.
const START_MAC: i32 = 0;

// linux/bpf.h, struct __sk_buff.
const LEN: i16 = 0;
pub(super) const PACKET_TYPE: i16 = 4;
pub(super) const MARK: i16 = 8;
pub(super) const QUEUE_MAPPING: i16 = 12;
pub(super) const PROTOCOL: i16 = 16;
pub(super) const VLAN_PRESENT: i16 = 20;
pub(super) const VLAN_TCI: i16 = 24;
pub(super) const VLAN_PROTO: i16 = 28;
pub(super) const IFINDEX: i16 = 40;
pub(super) const HASH: i16 = 68;

// linux/bpf.h, struct xdp_md.
const XDP_DATA: i16 = 0;
const XDP_DATA_END: i16 = 4;
const XDP_QUEUE: i16 = 16;

// linux/bpf.h, enum bpf_func_id.
pub(super) const MAP_LOOKUP: i32 = 1;
pub(super) const MAP_UPDATE: i32 = 2;
pub(super) const KTIME_GET_NS: i32 = 5;
pub(super) const GET_PRANDOM_U32: i32 = 7;
pub(super) const GET_SMP_PROCESSOR_ID: i32 = 8;
const SKB_LOAD_BYTES: i32 = 26;
pub(super) const SKB_LOAD_BYTES_RELATIVE: i32 = 68;
const XDP_GET_BUFF_LEN: i32 = 188;
const XDP_LOAD_BYTES: i32 = 189;
