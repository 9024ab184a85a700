//! Fast code for plain packets. Most packets are plain (`view.rs`).
//!
//! If the tree reads headers, there is one body for all packets. This code then stores the view and
//! the headers of a plain packet in the places where the walk stores the view and the headers of
//! other packets. If the tree does not read headers, each IP version has a separate body for plain
//! packets. That body reads addresses and ports from the frame.

use super::emitter::Emitter;
use super::inside::{SESSION_PORTS, TUNNEL_PORTS};
use super::needs::Needs;
use super::stack::{CARRIED, HEADER, OUTER, PORTS};
use super::view::{
    Bytes, IPV4, IPV6, LINK, NETWORK_SHIFT, TRANSPORT_SHIFT, View, WITH_PORTS, network_order,
    plain_len,
};
use fanpcap_bpf::assembler::*;

const LINK_LEN: u8 = 14;

impl Emitter<'_> {
    /// Emits the bodies for plain packets, and tests of the frame's first bytes that identify plain
    /// packets.
    pub(super) fn plain_bodies(&mut self, needs: &Needs) {
        let general = self.asm.label();
        self.asm.note("plain IPv4?");
        let head = self.head(0, plain_len(false), general);
        self.raw_half(head.at(12));
        self.unless(R1.is(network_order(0x86dd)), |this| {
            this.asm.jump_if(R1.is_not(network_order(0x0800)), general);
            this.plain_body(needs, false, head, general);
        });
        self.asm.note("plain IPv6?");
        let (from, to) = (plain_len(false), plain_len(true));
        let head = self.head(from, to, general);
        self.plain_body(needs, true, head, general);
        self.asm.bind(general);
    }

    fn plain_body(&mut self, needs: &Needs, ipv6: bool, head: Bytes, general: Label) {
        self.require_plain(needs, ipv6, head, general);
        self.asm
            .note(if ipv6 { "plain IPv6" } else { "plain IPv4" });
        self.body(&self.tree.main);
        self.view = View::Packed;
    }

    /// Jumps to `general` unless the packet is plain. `ipv6` says that the frame's Ethernet type is
    /// that of IPv6. Sets the view of a plain packet.
    fn require_plain(&mut self, needs: &Needs, ipv6: bool, head: Bytes, general: Label) {
        let tcp = self.asm.label();
        head.at(LINK_LEN).byte(&mut self.asm, R1);
        if ipv6 {
            self.asm.alu(Op::And, R1, 0xf0);
            self.asm.jump_if(R1.is_not(0x60), general);
        } else {
            self.asm.jump_if(R1.is_not(0x45), general);
            self.raw_half(head.at(LINK_LEN + 6));
            self.asm.jump_if(R1.has_any(network_order(0x3fff)), general);
        }
        let (base, at) = (head.base, head.at);
        self.view = View::Plain { ipv6, base, at };
        self.protocol(R1);
        self.asm.jump_if(R1.is(6), tcp);
        self.asm.jump_if(R1.is_not(17), general);
        if needs.inside {
            let ports = head.at(plain_len(ipv6) - 4);
            for (at, tunnels) in [(0, &SESSION_PORTS[..]), (2, &TUNNEL_PORTS)] {
                self.raw_half(ports.at(at));
                for &port in tunnels {
                    self.asm.jump_if(R1.is(network_order(port)), general);
                }
            }
        }
        self.asm.bind(tcp);
    }

    /// For a plain packet, stores the view and the headers on the stack and jumps to `ready`.
    pub(super) fn plain_views(&mut self, needs: &Needs, ready: Label) {
        let [short, four, six, general, seen] = self.asm.labels();
        self.asm.note("plain?");
        let at = HEADER - i16::from(LINK_LEN);
        let head = Bytes { base: R10, at };
        let (less, len) = (plain_len(false), plain_len(true));
        self.start(len, at, short);
        self.raw_half(head.at(12));
        self.asm.jump_if(R1.is(network_order(0x0800)), four);
        self.asm.branch(R1.is(network_order(0x86dd)), six, general);
        self.asm.bind(short);
        self.start(less, at, general);
        self.raw_half(head.at(12));
        self.asm.jump_if(R1.is_not(network_order(0x0800)), general);
        self.asm.bind(four);
        self.plain_view(needs, false, head, general);
        self.asm.jump(seen);
        self.asm.bind(six);
        self.plain_view(needs, true, head, general);
        self.asm.bind(seen);
        self.keep_plain_view(needs);
        self.asm.jump(ready);
        self.asm.bind(general);
    }

    /// Loads the view into r7 and stores the ports.
    fn plain_view(&mut self, needs: &Needs, ipv6: bool, head: Bytes, general: Label) {
        self.require_plain(needs, ipv6, head, general);
        let ports = head.at(plain_len(ipv6) - 4);
        ports.raw(&mut self.asm, Width::Word, R1);
        self.asm.store(Width::Word, R10, PORTS, R1);
        self.protocol(R1);
        self.view = View::Packed;
        let (version, words) = if ipv6 { (IPV6, 10) } else { (IPV4, 5) };
        let flags = LINK | WITH_PORTS | version;
        self.begin_view();
        self.asm.set(R7, (R7 | R1) | flags);
        let places = (u64::from(LINK_LEN) << NETWORK_SHIFT) | (words << TRANSPORT_SHIFT);
        self.asm.number(R1, places);
        self.asm.alu(Op::Or, R7, R1);
    }

    /// Stores the view in the place where the walk stores views. The verifier knows nothing of this
    /// view's value, so the code need not erase knowledge.
    fn keep_plain_view(&mut self, needs: &Needs) {
        self.asm.store(Width::Word, R10, OUTER, R7);
        self.asm.alu(Op::Right, R7, 32);
        self.asm.store(Width::Word, R10, OUTER + 8, R7);
        if needs.inside {
            // The value is 0, but the verifier does not know that.
            self.asm.load(Width::Word, R1, R6, 16);
            self.asm.set(R2, R1);
            self.asm.alu(Op::Xor, R1, R2);
            self.asm.store(Width::Word, R10, CARRIED, R1);
            self.asm.store(Width::Word, R10, CARRIED + 8, R1);
        }
    }

    fn raw_half(&mut self, bytes: Bytes) {
        bytes.raw(&mut self.asm, Width::Half, R1);
    }
}
