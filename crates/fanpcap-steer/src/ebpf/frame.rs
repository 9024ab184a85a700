//! Reads the frame, and the metadata that the hook has.
//!
//! In a socket buffer absolute offsets count from the buffer's data pointer. For a received packet
//! in a group's BPF program, the data pointer is at the network header. In all other cases the data
//! pointer is at the frame's first byte. So the code reads frames relative to the MAC header. Such
//! loads do not reach beyond the buffer's linear part (net/core/filter.c,
//! `bpf_skb_load_bytes_relative`). Beyond the linear part, the code uses absolute offsets.
//!
//! At XDP the code reads the first bytes of the frame directly, and the rest by
//! `bpf_xdp_load_bytes` (since Linux 5.18). Without `CAP_PERFMON` the verifier refuses packet
//! pointers with a variable offset.

use super::emitter::Emitter;
use super::stack::WINDOW;
use super::target::Target;
use super::view::{Bytes, LATE_START};
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;

impl Emitter<'_> {
    /// Begins a view in r7, as [`LATE_START`] or 0. Keeps r1 to r5.
    pub(super) fn begin_view(&mut self) {
        if self.target == Target::Fanout {
            self.is_received(R7);
            self.asm.alu(Op::Left, R7, LATE_START_SHIFT);
        } else {
            self.asm.set(R7, 0);
        }
    }

    /// Loads 1 for a received frame, 0 for a sent one. Uses no jump, because the verifier would
    /// follow both paths. Use few such loads: the kernel replaces each of them by several
    /// instructions when a process loads the BPF program, and inserting the instructions takes time
    /// proportional to the BPF program's length.
    fn is_received(&mut self, target: Register) {
        self.context(target, skb::PKT_TYPE);
        self.asm.alu(Op::Xor, target, PACKET_OUTGOING);
        self.asm.alu(Op::Negate, target, 0);
        self.asm.alu(Op::Right, target, 63);
    }

    /// Subtracts from r2 the number of frame bytes before the buffer's data pointer. `viewed` says
    /// that r7 is a view. Clobbers r5.
    fn subtract_start(&mut self, viewed: bool) {
        if self.target != Target::Fanout {
            return self.asm.subtract_start(R2);
        }
        if viewed {
            self.asm.set(R5, (R7 >> LATE_START_SHIFT) & 1);
        } else {
            self.is_received(R5);
        }
        self.asm.alu(Op::Mul, R5, ETHERNET_LEN);
        self.asm.alu(Op::Sub, R2, R5);
    }

    /// Copies `len` bytes of the frame at the offset `from` to the stack at `to`. `len` is a
    /// number, or a register from r6 to r9. Clobbers r0 to r5. Jumps to `missing` if the frame is
    /// too short.
    pub(super) fn copy(
        &mut self,
        from: impl Value + Copy,
        len: impl Into<Operand>,
        to: i16,
        missing: Label,
    ) {
        self.asm.set(R2, from);
        let again = |asm: &mut Assembler| asm.set(R2, from);
        self.copy_placed(&again, false, len.into(), to, missing);
    }

    /// As [`Self::copy`], from the offset in r2. The first of two helpers clobbers r2, so `again`
    /// computes the offset again for the second helper. `viewed` says that r7 is a view.
    pub(super) fn copy_placed(
        &mut self,
        again: &dyn Fn(&mut Assembler),
        viewed: bool,
        len: Operand,
        to: i16,
        missing: Label,
    ) {
        let arguments = (R6, R2, stack(to), len);
        let whole = match self.target {
            Target::Xdp => Some(XDP_LOAD_BYTES),
            // The data pointer is at the frame's first byte.
            Target::Sent => Some(SKB_LOAD_BYTES),
            Target::Fanout | Target::Filter => None,
        };
        if let Some(helper) = whole {
            self.asm.call(helper, arguments);
            return self.asm.jump_if(R0.is_not(0), missing);
        }
        self.call_relative(to, len);
        self.unless(R0.is(0), |this| {
            again(&mut this.asm);
            this.subtract_start(viewed);
            this.asm.call(SKB_LOAD_BYTES, arguments);
            this.asm.jump_if(R0.is_not(0), missing);
        });
    }

    /// Copies `len` bytes of the buffer's linear part to the stack, from the offset in r2.
    fn call_relative(&mut self, to: i16, len: impl Into<Operand>) {
        let arguments = (R6, R2, stack(to), len.into(), START_MAC);
        self.asm.call(SKB_LOAD_BYTES_RELATIVE, arguments);
    }

    /// Makes bytes `from` to `to` of the frame readable, and returns the place of the frame's byte
    /// 0. Earlier calls must have made the bytes before `from` readable.
    pub(super) fn head(&mut self, from: u8, to: u8, missing: Label) -> Bytes {
        if self.target == Target::Xdp {
            self.reach(R7, R1, i32::from(to), missing);
            return Bytes { base: R7, at: 0 };
        }
        self.linear(from, to - from, WINDOW + i16::from(from), missing);
        Bytes {
            base: R10,
            at: WINDOW,
        }
    }

    /// Copies the frame's first `len` bytes to the stack at `to`, or jumps to `missing`. Clobbers
    /// r0 to r5.
    pub(super) fn start(&mut self, len: u8, to: i16, missing: Label) {
        if self.target == Target::Xdp {
            self.copy(0, i32::from(len), to, missing);
        } else {
            self.linear(0, len, to, missing);
        }
    }

    fn linear(&mut self, from: u8, len: u8, to: i16, missing: Label) {
        self.asm.set(R2, i32::from(from));
        self.call_relative(to, i32::from(len));
        self.asm.jump_if(R0.is_not(0), missing);
    }

    /// Loads the address of a frame at XDP, or jumps to `beyond` if the frame has less than `len`
    /// bytes. Clobbers r2 and `end`.
    fn reach(&mut self, start: Register, end: Register, len: i32, beyond: Label) {
        self.context(start, xdp::DATA);
        self.context(R2, xdp::DATA_END);
        self.asm.set(end, start + len);
        self.asm.jump_if(end.above(R2), beyond);
    }

    /// Loads bytes of the frame directly into r1, or jumps to `far` if the code can't read them
    /// directly. Clobbers r2 and r3.
    pub(super) fn near(&mut self, offset: u16, size: u8, far: Label) {
        self.reach(R1, R3, i32::from(offset) + i32::from(size), far);
        self.asm.load(width(size), R1, R1, offset as i16);
    }

    /// Loads a field of the context.
    pub(super) fn context(&mut self, target: Register, field: i16) {
        self.asm.load(Width::Word, target, R6, field);
    }

    /// Loads the index of the interface into r1.
    pub(super) fn interface(&mut self) {
        let at_xdp = self.target == Target::Xdp;
        self.context(
            R1,
            if at_xdp {
                xdp::INGRESS_IFINDEX
            } else {
                skb::IFINDEX
            },
        );
    }

    /// Loads the TCI of the tag beside the frame into r1, or jumps to `none`. Keeps r2 to r5.
    pub(super) fn tag_beside(&mut self, none: Label) {
        self.present(skb::VLAN_PRESENT, none);
        self.context(R1, skb::VLAN_TCI);
    }

    /// Loads the protocol of the tag beside the frame into r1, as a number. The tag must exist.
    pub(super) fn tag_type(&mut self) {
        self.context(R1, skb::VLAN_PROTO);
        self.asm.big_endian(R1, 16);
    }

    /// Loads the packet's mark into r1, or jumps to `none`.
    pub(super) fn mark_beside(&mut self, none: Label) {
        if self.target == Target::Xdp {
            self.asm.jump(none);
        } else {
            self.context(R1, skb::MARK);
        }
    }

    /// Loads the receiving queue into r1, or jumps to `none`.
    pub(super) fn queue(&mut self, none: Label) {
        match self.target {
            Target::Xdp => self.context(R1, xdp::RX_QUEUE_INDEX),
            Target::Sent => self.asm.jump(none),
            Target::Fanout | Target::Filter => {
                // For a sent frame, the field has the transmit queue, which no predicate reads.
                self.context(R1, skb::PKT_TYPE);
                self.asm.jump_if(R1.is(PACKET_OUTGOING), none);
                self.present(skb::QUEUE_MAPPING, none);
                self.asm.alu(Op::Sub, R1, 1);
            }
        }
    }

    /// Loads the packet's hash into r1, or jumps to `none`.
    pub(super) fn hash_beside(&mut self, none: Label) {
        self.present(skb::HASH, none);
    }

    /// Loads a field of the socket buffer into r1. Jumps to `none` if the field is 0. At XDP,
    /// always jumps to `none`.
    fn present(&mut self, field: i16, none: Label) {
        if self.target == Target::Xdp {
            return self.asm.jump(none);
        }
        self.context(R1, field);
        self.asm.jump_if(R1.is(0), none);
    }

    /// Loads into r1 the frame's length, without a tag that the kernel keeps beside it. Clobbers r0
    /// to r5.
    pub(super) fn length(&mut self) {
        if self.target == Target::Xdp {
            self.asm.call(XDP_GET_BUFF_LEN, (R6,));
            return self.asm.set(R1, R0);
        }
        // len = -(-len - start)
        self.context(R2, skb::LEN);
        self.asm.alu(Op::Negate, R2, 0);
        self.subtract_start(false);
        self.asm.alu(Op::Negate, R2, 0);
        self.asm.set(R1, R2);
    }
}

/// The load of this many bytes.
pub(super) fn width(size: u8) -> Width {
    match size {
        1 => Width::Byte,
        2 => Width::Half,
        _ => Width::Word,
    }
}

const LATE_START_SHIFT: i32 = LATE_START.trailing_zeros() as i32;
const ETHERNET_LEN: i32 = 14;
