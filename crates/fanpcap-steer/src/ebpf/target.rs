//! Differences between the hooks: how the code reads the frame, and which metadata the kernel has.

use super::view::LATE_START;
use fanpcap_bpf::ProgramKind;
use fanpcap_bpf::assembler::{
    Assembler, If, Label, Op, Operand, R0, R1, R2, R3, R4, R5, R6, R7, R10, Register, Width,
};

/// The hook of a BPF program. r6 always holds the context.
pub(super) trait Target {
    /// Begins a view in r7: [`LATE_START`] or 0. Keeps r1 to r5.
    fn begin_view(&self, asm: &mut Assembler);

    /// Copies `len` bytes of the frame from the offset in r2 to the stack at `to`; `len` is a
    /// number or in r6 to r9. `again` computes the offset in r2 once more. `viewed` says that r7 is
    /// a view. Clobbers r0 to r5. Jumps to `missing` if the frame is too short.
    fn load(
        &self,
        asm: &mut Assembler,
        again: &dyn Fn(&mut Assembler),
        viewed: bool,
        len: Operand,
        to: i16,
        missing: Label,
    );

    /// Makes bytes `from` to `to` of the frame readable. Returns register and offset of byte 0.
    /// Earlier calls have requested the bytes before `from`. `window` is the stack offset for byte
    /// 0.
    fn head(
        &self,
        asm: &mut Assembler,
        from: u8,
        to: u8,
        window: i16,
        missing: Label,
    ) -> (Register, i16);

    /// Copies the frame's first `len` bytes to the stack at `to`, or jumps to `missing`. Clobbers
    /// r0 to r5.
    fn start(&self, asm: &mut Assembler, len: u8, to: i16, missing: Label);

    /// Whether the code reads the head of a frame where it is, not from a copy on the stack.
    fn reads_in_place(&self) -> bool {
        false
    }

    /// Whether bytes of the frame can be loaded directly.
    fn is_near(&self, _offset: u16, _len: u8) -> bool {
        false
    }

    /// Loads bytes of the frame directly into r1, or jumps to `far`. Clobbers r2 and r3.
    fn near(&self, _asm: &mut Assembler, _offset: u16, _width: Width, _far: Label) {}

    /// Loads the index of the interface into r1.
    fn interface(&self, asm: &mut Assembler);

    /// Loads the TCI of the tag beside the frame into r1, or jumps to `none`. Keeps r2 to r5.
    fn tag(&self, asm: &mut Assembler, none: Label);

    /// Loads the protocol of the tag beside the frame into r1, as a number. The tag must exist.
    fn tag_type(&self, asm: &mut Assembler);

    /// Loads the packet's mark into r1, or jumps to `none`.
    fn mark(&self, asm: &mut Assembler, none: Label);

    /// Loads the receiving queue into r1, or jumps to `none`.
    fn queue(&self, asm: &mut Assembler, none: Label);

    /// Loads the packet's hash into r1, or jumps to `none`.
    fn hash(&self, asm: &mut Assembler, none: Label);

    /// Loads the frame's length, without a tag beside it, into r1. Clobbers r0 to r5.
    fn length(&self, asm: &mut Assembler);

    /// Type of the BPF program.
    fn kind(&self) -> ProgramKind;
}

/// A socket filter: a group's BPF program, or a member's filter.
///
/// Absolute offsets count from the buffer's data pointer. For a received packet in a group's BPF
/// program, the pointer is at the network header; else it is at the frame's first byte. So the code
/// reads frames relative to the MAC header. Such loads do not reach beyond the buffer's linear part
/// (net/core/filter.c, `bpf_skb_load_bytes_relative`); there the code uses absolute offsets.
#[derive(Debug)]
pub(super) struct Socket {
    /// The group's BPF program, else a member's filter.
    pub(super) fanout: bool,
}

impl Socket {
    /// Subtracts from r2 the number of frame bytes before the buffer's data pointer. Clobbers r5.
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

/// Loads 1 for a received frame, 0 for a sent one. Uses no jump: the verifier would follow both
/// ways. The kernel expands the load into several instructions; to make room for them it takes time
/// proportional to the program's length.
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
        // For a sent frame the field is the transmit queue, which no predicate means.
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

/// XDP: the code reads the head of the frame directly and the rest by `bpf_xdp_load_bytes` (since
/// Linux 5.18). Without `CAP_PERFMON` the verifier refuses packet pointers with a variable offset.
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

    fn reads_in_place(&self) -> bool {
        true
    }

    /// Frames begin two bytes beyond a multiple of four where a processor demands aligned loads
    /// (`NET_IP_ALIGN`).
    fn is_near(&self, offset: u16, len: u8) -> bool {
        offset < NEAR && (offset + 2) % u16::from(len) == 0
    }

    fn near(&self, asm: &mut Assembler, offset: u16, width: Width, far: Label) {
        let len = match width {
            Width::Byte => 1,
            Width::Half => 2,
            Width::Word => 4,
            Width::Double => 8,
        };
        let at = offset as i16;
        asm.load(Width::Word, R1, R6, XDP_DATA);
        asm.load(Width::Word, R2, R6, XDP_DATA_END);
        asm.set(R3, R1);
        asm.alu(Op::Add, R3, i32::from(at) + len);
        asm.jump_if(If::Greater, R3, R2, far);
        asm.load(width, R1, R1, at);
    }

    fn interface(&self, asm: &mut Assembler) {
        asm.load(Width::Word, R1, R6, XDP_INTERFACE);
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
const XDP_INTERFACE: i16 = 12;
const XDP_QUEUE: i16 = 16;

/// Bytes of a frame that may be loaded directly: more than a page has.
const NEAR: u16 = 16_384;

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
