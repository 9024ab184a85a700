//! The way in for plain packets, which most are: see `view.rs`.

use super::assembler::{If, Label, Op, R1, Width};
use super::emitter::Emitter;
use super::inside::TUNNEL_PORTS;
use super::needs::Needs;
use super::view::{Bytes, View, WINDOW, network_order, plain_len};

impl Emitter<'_> {
    /// The program for plain packets, by the first bytes of the frame.
    pub(super) fn plain(&mut self, needs: &Needs) {
        let (six, general) = (self.asm.label(), self.asm.label());
        self.asm.note("plain IPv4?");
        let (base, at) = self
            .target
            .head(&mut self.asm, 0, plain_len(false), WINDOW, general);
        let head = Bytes { base, at };
        self.raw_half(head.at(12));
        self.asm.jump_if(If::Equal, R1, network_order(0x86dd), six);
        self.asm
            .jump_if(If::NotEqual, R1, network_order(0x0800), general);
        head.at(14).byte(&mut self.asm, R1);
        self.asm.jump_if(If::NotEqual, R1, 0x45, general);
        self.raw_half(head.at(20));
        self.asm
            .jump_if(If::AnyBit, R1, network_order(0x3fff), general);
        self.plain_body(needs, false, head, general);
        self.asm.bind(six);
        self.asm.note("plain IPv6?");
        let (from, to) = (plain_len(false), plain_len(true));
        let (base, at) = self.target.head(&mut self.asm, from, to, WINDOW, general);
        let head = Bytes { base, at };
        head.at(14).byte(&mut self.asm, R1);
        self.asm.alu(Op::And, R1, 0xf0);
        self.asm.jump_if(If::NotEqual, R1, 0x60, general);
        self.plain_body(needs, true, head, general);
        self.asm.bind(general);
    }

    fn plain_body(&mut self, needs: &Needs, ipv6: bool, head: Bytes, general: Label) {
        let tcp = self.asm.label();
        self.view = View::Plain {
            ipv6,
            base: head.base,
            at: head.at,
        };
        self.protocol(R1);
        self.asm.jump_if(If::Equal, R1, 6, tcp);
        self.asm.jump_if(If::NotEqual, R1, 17, general);
        if needs.inside {
            let ports = plain_len(ipv6) - 4;
            self.raw_half(head.at(ports + 2));
            for port in TUNNEL_PORTS {
                self.asm
                    .jump_if(If::Equal, R1, network_order(port), general);
            }
        }
        self.asm.bind(tcp);
        self.asm
            .note(if ipv6 { "plain IPv6" } else { "plain IPv4" });
        self.body(&self.program.main);
        self.view = View::Packed;
    }

    fn raw_half(&mut self, bytes: Bytes) {
        self.asm.load(Width::Half, R1, bytes.base, bytes.at);
    }
}
