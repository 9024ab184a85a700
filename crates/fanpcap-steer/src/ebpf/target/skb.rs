//! BPF programs on socket buffers: of groups, of members' filters, and for packets that the host
//! sends.

use super::super::view::LATE_START;
use super::{
    HASH, IFINDEX, MARK, PACKET_TYPE, QUEUE_MAPPING, SKB_LOAD_BYTES_RELATIVE, Target, VLAN_PRESENT,
    VLAN_PROTO, VLAN_TCI,
};
use fanpcap_bpf::ProgramKind;
use fanpcap_bpf::assembler::{
    Assembler, If, Label, Op, Operand, R0, R1, R2, R3, R4, R5, R6, R7, R10, Register, Width,
};

/// A hook at which a BPF program reads socket buffers.
///
/// Absolute offsets count from the buffer's data pointer. For a received packet in a group's BPF
/// program, the pointer is at the network header; otherwise it is at the frame's first byte. So the
/// code reads frames relative to the MAC header. Such loads do not reach beyond the buffer's linear
/// part (net/core/filter.c, `bpf_skb_load_bytes_relative`). Beyond it the code uses absolute
/// offsets.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Skb {
    /// The group's BPF program, `BPF_PROG_TYPE_SOCKET_FILTER`.
    Fanout,
    /// A member's filter, `BPF_PROG_TYPE_SOCKET_FILTER`.
    Filter,
    /// Packets that the host sends, at a device's traffic control (tcx, since Linux 6.6).
    Sent,
}

impl Skb {
    /// Subtracts from r2 the number of frame bytes before the buffer's data pointer. Clobbers r5.
    fn subtract_start(&self, asm: &mut Assembler, viewed: bool) {
        if *self != Self::Fanout {
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

/// Loads 1 for a received frame, 0 for a sent one. Uses no jump, because the verifier would follow
/// both ways. The kernel expands the load into several instructions; making room for them takes
/// time proportional to the program's length.
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

/// Copies bytes of the buffer's linear part.
fn linear(asm: &mut Assembler, from: u8, len: u8, to: i16, missing: Label) {
    asm.set(R2, i32::from(from));
    destination(asm, to, i32::from(len).into());
    asm.set(R5, START_MAC);
    asm.call(SKB_LOAD_BYTES_RELATIVE);
    asm.jump_if(If::NotEqual, R0, 0, missing);
}

impl Target for Skb {
    fn begin_view(&self, asm: &mut Assembler) {
        if *self == Self::Fanout {
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

    fn interface(&self, asm: &mut Assembler) {
        asm.load(Width::Word, R1, R6, IFINDEX);
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
        if *self == Self::Sent {
            return asm.jump(none);
        }
        // For a sent frame the field is the transmit queue, which no predicate asks for.
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
        match self {
            Self::Fanout | Self::Filter => ProgramKind::SocketFilter,
            Self::Sent => ProgramKind::SchedCls,
        }
    }
}

const ETHERNET_LEN: i32 = 14;
/// linux/if_packet.h.
const PACKET_OUTGOING: i32 = 4;
/// linux/bpf.h, struct __sk_buff.
const LEN: i16 = 0;
/// linux/bpf.h, enum bpf_hdr_start_off.
const START_MAC: i32 = 0;
/// linux/bpf.h, enum bpf_func_id.
const SKB_LOAD_BYTES: i32 = 26;
