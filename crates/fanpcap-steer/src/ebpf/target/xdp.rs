//! BPF programs at XDP.

use super::Target;
use fanpcap_bpf::ProgramKind;
use fanpcap_bpf::assembler::{
    Assembler, If, Label, Op, Operand, R0, R1, R2, R3, R4, R6, R7, R10, Register, Width,
};

/// XDP: the code reads the first bytes of the frame directly, and the rest by `bpf_xdp_load_bytes`
/// (since Linux 5.18). Without `CAP_PERFMON` the verifier refuses packet pointers with a variable
/// offset.
#[derive(Debug)]
pub(in super::super) struct Xdp;

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

    /// If a processor demands aligned loads, frames begin two bytes beyond a multiple of four
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

// linux/bpf.h, struct xdp_md.
const XDP_DATA: i16 = 0;
const XDP_DATA_END: i16 = 4;
const XDP_INTERFACE: i16 = 12;
const XDP_QUEUE: i16 = 16;

/// Limit of the offsets that may be loaded directly: more than a page has.
const NEAR: u16 = 16_384;

// linux/bpf.h, enum bpf_func_id.
const XDP_GET_BUFF_LEN: i32 = 188;
const XDP_LOAD_BYTES: i32 = 189;
