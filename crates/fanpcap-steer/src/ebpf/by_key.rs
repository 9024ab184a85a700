//! BPF programs that compute a key of each packet.

use super::emitter::{Emitter, Plain, Routine};
use super::keyed::Keyed;
use super::needs::Needs;
use super::view::{DISTANCE_MASK, IPV4, IPV6, NETWORK_MASK, NETWORK_SHIFT, PROTOCOL_MASK};
use super::view::{TAGS_MASK, TRANSPORT_SHIFT};
use fanpcap_bpf::assembler::*;

impl<'a> Emitter<'a> {
    /// Emits a BPF program that computes a key. With a tree the key is the tree's hash, or 0 for a
    /// packet that the tree drops.
    pub(super) fn keyed(&mut self, by: &'a dyn Keyed, has_tree: bool, needs: &Needs, plain: Plain) {
        self.maps.begin_with(by.maps());
        let keyed = self.asm.label();
        self.decided = Some(keyed);
        self.asm.set(R6, R1);
        self.asm.note("arrive");
        by.arrive(&mut self.asm, keyed);
        if !self.asm.is_live() {
            // `arrive` has set the key of every packet.
        } else if has_tree {
            self.main(needs, plain);
        } else {
            self.walk(needs);
            self.place_headers();
            self.asm.note("key");
            by.key(&mut self.asm, keyed);
        }
        self.asm.bind(keyed);
        self.asm.note("leave");
        let filter = by.filter().map(|_| self.routine_label(Routine::Own));
        by.leave(&mut self.asm, filter);
    }

    /// Replaces the view in r7 by the registers that [`Keyed::key`] expects.
    fn place_headers(&mut self) {
        let done = self.asm.label();
        self.asm.set(R8, (R7 >> NETWORK_SHIFT) & NETWORK_MASK);
        self.asm.set(R9, R7);
        self.asm.unless(R7.has_any(IPV4 | IPV6), |asm| {
            // If there is no IP packet, the view has the offset of the Ethernet header's end. The
            // code adds the length of the tags, and subtracts the 2 bytes of the Ethernet type.
            asm.set(R7, (R7 >> 13) & (TAGS_MASK << 2));
            asm.set(R8, (R8 + R7) - 2);
            asm.set(R7, 0);
            asm.set(R9, 0);
            asm.jump(done);
        });
        self.asm.alu(Op::And, R7, IPV4 | IPV6 | PROTOCOL_MASK);
        self.asm.set(R9, (R9 >> TRANSPORT_SHIFT) & DISTANCE_MASK);
        self.asm.jump_if(R9.is(0), done);
        self.asm.set(R9, (R9 << 2) + R8);
        self.asm.bind(done);
    }

    /// Ends a body, with the key in r8. Binds `drop`, to which the body jumps for a packet without
    /// a key.
    pub(super) fn has_key(&mut self, drop: Label) {
        let keyed = self.decided;
        self.follow();
        if let Some(keyed) = keyed {
            self.asm.jump(keyed);
        }
        self.asm.bind(drop);
        if self.asm.is_live() {
            self.asm.set(R8, 0);
            if let Some(keyed) = keyed {
                self.asm.jump(keyed);
            }
        }
    }
}
