//! Steering by the local side of a packet.

use super::emitter::Emitter;
use super::view::Bytes;
use crate::hash::M1;
use crate::ir::Net;
use fanpcap_bpf::assembler::*;

impl Emitter<'_> {
    /// Steers by the address of the local side, or by both addresses if both are local. Only the
    /// first `bits` bits of an address are hashed.
    pub(super) fn by_local(&mut self, net: Net, bits: Option<u8>, drop: Label) {
        let ipv6 = net.address.is_ipv6();
        let bits = bits.unwrap_or(128);
        let [source, not_source, done] = self.asm.labels();
        let other = if ipv6 { 16 } else { 4 };
        let both = self.addresses(ipv6, drop);
        self.in_net(both, net, not_source);
        self.in_net(both.at(other), net, source);
        self.local_end(both, ipv6, bits);
        self.asm.set(R9, R1);
        self.local_end(both.at(other), ipv6, bits);
        self.asm.alu(Op::Add, R1, R9);
        self.outcome(R1);
        self.asm.jump(done);
        self.asm.bind(source);
        self.local_end(both, ipv6, bits);
        self.outcome(R1);
        self.asm.jump(done);
        self.asm.bind(not_source);
        self.in_net(both.at(other), net, drop);
        self.local_end(both.at(other), ipv6, bits);
        self.outcome(R1);
        self.asm.bind(done);
    }

    /// Computes into r1 the `end` (`hash.rs`) of an address without a port, after clearing all bits
    /// except the first `bits`.
    fn local_end(&mut self, address: Bytes, ipv6: bool, bits: u8) {
        self.cut(address, ipv6, bits);
        self.asm.number(R5, M1);
        if ipv6 {
            self.mix(R2);
            self.asm.alu(Op::Xor, R1, R2);
        } else {
            self.asm.alu(Op::Left, R1, 16);
        }
        self.mix(R1);
        self.mix(R1);
    }

    pub(super) fn by_local_link(&mut self, gateway: [u8; 6], drop: Label) {
        let [not_source, neither, one, done] = self.asm.labels();
        self.links(drop);
        let [a, b, c, d, e, f] = gateway;
        self.asm
            .number(R3, u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        self.asm.branch(R2.is_not(R3), not_source, one);
        self.asm.bind(not_source);
        self.asm.jump_if(R1.is_not(R3), neither);
        self.asm.set(R1, R2);
        self.asm.bind(one);
        self.end(R1);
        self.outcome(R1);
        self.asm.jump(done);
        self.asm.bind(neither);
        self.two_ends();
        self.outcome(R1);
        self.asm.bind(done);
    }
}
