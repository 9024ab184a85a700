//! Emits tests of a view: of its flags, its protocol and its transport header.

use super::emitter::Emitter;
use super::stack::OUTER;
use super::view::{Bytes, DISTANCE_MASK, LOWEST, PROTOCOL_MASK, TRANSPORT_SHIFT, View, distance};
use fanpcap_bpf::assembler::*;

impl Emitter<'_> {
    /// Jumps to `yes` if the view has one of the flags. Clobbers r2.
    pub(super) fn jump_if_any(&mut self, flags: i32, yes: Label) {
        let mut view = R7;
        if self.view == View::Kept {
            self.asm.load(Width::Word, R2, R10, OUTER);
            view = R2;
        }
        self.asm.jump_if(view.has_any(flags), yes);
    }

    /// Jumps to `no` unless the view has one of the flags. Clobbers r2.
    pub(super) fn require(&mut self, flags: i32, no: Label) {
        let yes = self.asm.label();
        self.jump_if_any(flags, yes);
        self.asm.jump(no);
        self.asm.bind(yes);
    }

    /// Jumps to `no` unless the view has a transport header. Clobbers r2.
    pub(super) fn require_transport(&mut self, no: Label) {
        match self.view {
            View::Plain { .. } => return,
            View::Packed => distance(&mut self.asm, R2, TRANSPORT_SHIFT),
            View::Kept => {
                self.asm.load(Width::Word, R2, R10, OUTER + 8);
                self.asm
                    .set(R2, (R2 >> (TRANSPORT_SHIFT - 32)) & DISTANCE_MASK);
            }
        }
        self.asm.jump_if(R2.is(0), no);
    }

    /// Jumps to `no` unless the upper protocol is one of these. Clobbers r2 and r3.
    pub(super) fn require_protocol(&mut self, protocols: &[u8], no: Label) {
        self.protocol(R2);
        self.require_one_of(R2, protocols, no);
    }

    /// Jumps to `no` unless `number` is in `of`. Uses few jumps, because the verifier follows both
    /// paths from each jump. Clobbers r3.
    pub(super) fn require_one_of(&mut self, number: Register, of: &[u8], no: Label) {
        let yes = self.asm.label();
        let (low, high): (Vec<u8>, Vec<u8>) = of.iter().partition(|&&one| one < 64);
        for one in high {
            self.asm.jump_if(number.is(i32::from(one)), yes);
        }
        match low[..] {
            [] => {}
            [one] => self.asm.jump_if(number.is(i32::from(one)), yes),
            _ => {
                self.asm.jump_if(number.above(63), no);
                self.asm
                    .number(R3, low.iter().fold(0, |mask, one| mask | (1 << one)));
                self.asm.alu(Op::Right, R3, number);
                self.asm.jump_if(R3.has_any(1), yes);
            }
        }
        self.asm.jump(no);
        self.asm.bind(yes);
    }

    /// Loads the upper protocol of an IP packet.
    pub(super) fn protocol(&mut self, target: Register) {
        match self.view {
            View::Packed => self.asm.set(target, R7 & PROTOCOL_MASK),
            View::Kept => self.asm.load(Width::Byte, target, R10, OUTER + LOWEST),
            View::Plain { ipv6, base, at } => {
                let offset = if ipv6 { 20 } else { 23 };
                Bytes { base, at }.at(offset).byte(&mut self.asm, target);
            }
        }
    }
}
