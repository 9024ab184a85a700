//! Differences between the hooks: how the code reads the frame, and which metadata there is.

mod skb;
mod xdp;

use fanpcap_bpf::ProgramKind;
use fanpcap_bpf::assembler::{Assembler, Label, Operand, Register, Width};
pub(super) use skb::Skb;
pub(super) use xdp::Xdp;

/// The hook of a BPF program. r6 always holds the context.
pub(super) trait Target {
    /// Begins a view in r7, as [`LATE_START`] or 0. Keeps r1 to r5.
    fn begin_view(&self, asm: &mut Assembler);

    /// Copies `len` bytes of the frame from the offset in r2 to the stack at `to`. `len` is a
    /// number or in r6 to r9. `again` recomputes the offset in r2. `viewed` says that r7 is a view.
    /// Clobbers r0 to r5. Jumps to `missing` if the frame is too short.
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

    /// Whether the code reads the first bytes of a frame in place, not from a copy on the stack.
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

    fn kind(&self) -> ProgramKind;
}

// linux/bpf.h, struct __sk_buff.
pub(super) const PACKET_TYPE: i16 = 4;
pub(super) const MARK: i16 = 8;
pub(super) const QUEUE_MAPPING: i16 = 12;
pub(super) const PROTOCOL: i16 = 16;
pub(super) const VLAN_PRESENT: i16 = 20;
pub(super) const VLAN_TCI: i16 = 24;
pub(super) const VLAN_PROTO: i16 = 28;
pub(super) const IFINDEX: i16 = 40;
pub(super) const HASH: i16 = 68;

// linux/bpf.h, enum bpf_func_id.
pub(super) const MAP_LOOKUP: i32 = 1;
pub(super) const MAP_UPDATE: i32 = 2;
pub(super) const KTIME_GET_NS: i32 = 5;
pub(super) const GET_PRANDOM_U32: i32 = 7;
pub(super) const GET_SMP_PROCESSOR_ID: i32 = 8;
pub(super) const SKB_LOAD_BYTES_RELATIVE: i32 = 68;
