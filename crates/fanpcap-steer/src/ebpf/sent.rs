//! The hook of packets that the host sends: a device's traffic control (tcx, since Linux 6.6).

use super::target::{Socket, Target};
use fanpcap_bpf::ProgramKind;
use fanpcap_bpf::assembler::{Assembler, Label, Operand, Register};

/// A BPF program at a device's traffic control. The frame is that of a member's filter: the
/// buffer's data begin with it, and its outermost tag may be beside it.
#[derive(Debug)]
pub(super) struct Sent;

const FRAME: Socket = Socket { fanout: false };

impl Target for Sent {
    fn begin_view(&self, asm: &mut Assembler) {
        FRAME.begin_view(asm);
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
        FRAME.load(asm, again, viewed, len, to, missing);
    }

    fn head(
        &self,
        asm: &mut Assembler,
        from: u8,
        to: u8,
        window: i16,
        missing: Label,
    ) -> (Register, i16) {
        FRAME.head(asm, from, to, window, missing)
    }

    fn start(&self, asm: &mut Assembler, len: u8, to: i16, missing: Label) {
        FRAME.start(asm, len, to, missing);
    }

    fn interface(&self, asm: &mut Assembler) {
        FRAME.interface(asm);
    }

    fn tag(&self, asm: &mut Assembler, none: Label) {
        FRAME.tag(asm, none);
    }

    fn tag_type(&self, asm: &mut Assembler) {
        FRAME.tag_type(asm);
    }

    fn mark(&self, asm: &mut Assembler, none: Label) {
        FRAME.mark(asm, none);
    }

    /// A sent packet has no receiving queue.
    fn queue(&self, asm: &mut Assembler, none: Label) {
        asm.jump(none);
    }

    fn hash(&self, asm: &mut Assembler, none: Label) {
        FRAME.hash(asm, none);
    }

    fn length(&self, asm: &mut Assembler) {
        FRAME.length(asm);
    }

    fn kind(&self) -> ProgramKind {
        ProgramKind::SchedCls
    }
}
