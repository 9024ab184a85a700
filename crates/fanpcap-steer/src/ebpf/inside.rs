//! From a packet's transport header to the packet that it carries, as in `fanpcap_wire`.

use super::emitter::Emitter;
use super::view::{INNER, Origin};
use super::walk::Stages;
use fanpcap_bpf::assembler::{If, Label, Op, R0, R1, R2, R8, R9};
use fanpcap_wire::GTP_EXTENSIONS_MAX;

/// UDP destination ports of tunnels.
pub(super) const TUNNEL_PORTS: [u16; 4] = [VXLAN, VXLAN_OLD, GENEVE, GTP_U];
const VXLAN: u16 = 4789;
/// Linux's default port.
const VXLAN_OLD: u16 = 8472;
const GENEVE: u16 = 6081;
pub(super) const GTP_U: u16 = 2152;
pub(super) const GTP_C: u16 = 2123;

impl Emitter<'_> {
    /// Jumps to the stage at which the carried packet begins, or to `none`.
    pub(super) fn inside(&mut self, stages: Stages, none: Label) {
        let (gre, udp) = (self.asm.label(), self.asm.label());
        self.require_transport(none);
        self.transport_to_current();
        self.protocol(R1);
        self.restart_view(INNER);
        self.asm.jump_if(If::Equal, R1, 4, stages.ipv4);
        self.asm.jump_if(If::Equal, R1, 41, stages.ipv6);
        self.asm.jump_if(If::Equal, R1, 47, gre);
        self.asm.jump_if(If::Equal, R1, 17, udp);
        self.asm.jump(none);
        self.asm.bind(gre);
        self.gre(stages, none);
        self.asm.bind(udp);
        self.udp(stages, none);
    }

    /// RFC 2784, RFC 2890.
    fn gre(&mut self, stages: Stages, none: Label) {
        let header = self.here(0, 4, none);
        header.half(&mut self.asm, R0);
        header.at(2).half(&mut self.asm, R9);
        self.asm.jump_if(If::AnyBit, R0, 0x4007, none);
        self.asm.alu(Op::Add, R8, 4);
        for flag in [0x8000, 0x2000, 0x1000] {
            let without = self.asm.label();
            self.asm.set(R1, R0);
            self.asm.alu(Op::And, R1, flag);
            self.asm.jump_if(If::Equal, R1, 0, without);
            self.asm.alu(Op::Add, R8, 4);
            self.asm.bind(without);
        }
        self.asm.jump_if(If::Equal, R9, 0x0800, stages.ipv4);
        self.asm.jump_if(If::Equal, R9, 0x86dd, stages.ipv6);
        self.asm.jump_if(If::Equal, R9, 0x8847, stages.mpls);
        self.asm.jump_if(If::Equal, R9, 0x8848, stages.mpls);
        self.asm.jump_if(If::Equal, R9, 0x6558, stages.ethernet);
        self.erspan(stages, none);
    }

    /// draft-foschiano-erspan; r0 has GRE's flags, r9 its protocol.
    fn erspan(&mut self, stages: Stages, none: Label) {
        let third = self.asm.label();
        self.asm.jump_if(If::Equal, R9, 0x22eb, third);
        self.asm.jump_if(If::NotEqual, R9, 0x88be, none);
        self.asm.alu(Op::And, R0, 0x1000);
        self.asm.jump_if(If::Equal, R0, 0, stages.ethernet);
        self.asm.alu(Op::Add, R8, 8);
        self.asm.jump(stages.ethernet);
        self.asm.bind(third);
        let header = self.here(11, 1, none);
        header.byte(&mut self.asm, R1);
        self.asm.alu(Op::Add, R8, 12);
        self.asm.alu(Op::And, R1, 1);
        self.asm.alu(Op::Left, R1, 3);
        self.asm.alu(Op::Add, R8, R1);
        self.asm.jump(stages.ethernet);
    }

    fn udp(&mut self, stages: Stages, none: Label) {
        let (vxlan, geneve, gtp) = (self.asm.label(), self.asm.label(), self.asm.label());
        let header = self.first_four(Origin::Current, 0, 8, none);
        header.at(2).half(&mut self.asm, R9);
        self.asm.alu(Op::Add, R8, 8);
        self.asm.jump_if(If::Equal, R9, i32::from(VXLAN), vxlan);
        self.asm.jump_if(If::Equal, R9, i32::from(VXLAN_OLD), vxlan);
        self.asm.jump_if(If::Equal, R9, i32::from(GENEVE), geneve);
        self.asm.jump_if(If::Equal, R9, i32::from(GTP_U), gtp);
        self.asm.jump(none);
        self.asm.bind(vxlan);
        self.vxlan(stages, none);
        self.asm.bind(geneve);
        self.geneve(stages, none);
        self.asm.bind(gtp);
        self.gtp_user(stages, none);
    }

    /// RFC 7348.
    fn vxlan(&mut self, stages: Stages, none: Label) {
        let header = self.first_four(Origin::Current, 0, 8, none);
        header.byte(&mut self.asm, R1);
        self.asm.alu(Op::Add, R8, 8);
        self.asm.jump_if(If::AnyBit, R1, 8, stages.ethernet);
        self.asm.jump(none);
    }

    /// RFC 8926.
    fn geneve(&mut self, stages: Stages, none: Label) {
        let header = self.first_four(Origin::Current, 0, 8, none);
        header.byte(&mut self.asm, R1);
        header.at(2).half(&mut self.asm, R2);
        self.asm.jump_if(If::AnyBit, R1, 0xc0, none);
        self.asm.alu(Op::Left, R1, 2);
        self.asm.alu(Op::Add, R8, R1);
        self.asm.alu(Op::Add, R8, 8);
        self.asm.jump_if(If::Equal, R2, 0x6558, stages.ethernet);
        self.asm.jump_if(If::Equal, R2, 0x0800, stages.ipv4);
        self.asm.jump_if(If::Equal, R2, 0x86dd, stages.ipv6);
        self.asm.jump(none);
    }

    /// 3GPP TS 29.281.
    fn gtp_user(&mut self, stages: Stages, none: Label) {
        let longer = self.asm.label();
        let header = self.first_four(Origin::Current, 0, 8, none);
        header.half(&mut self.asm, R9);
        self.asm.set(R1, R9);
        self.asm.alu(Op::And, R1, 0xf0ff);
        self.asm.jump_if(If::NotEqual, R1, 0x30ff, none);
        self.asm.alu(Op::Add, R8, 8);
        self.asm.jump_if(If::AnyBit, R9, 0x0700, longer);
        self.asm.jump(stages.version);
        self.asm.bind(longer);
        let optional = self.here(0, 4, none);
        optional.at(3).byte(&mut self.asm, R1);
        self.asm.alu(Op::Add, R8, 4);
        // Without the flag the byte exists and has no meaning.
        self.asm.alu(Op::And, R9, 0x0400);
        self.asm.jump_if(If::Equal, R9, 0, stages.version);
        for _ in 0..GTP_EXTENSIONS_MAX {
            self.gtp_extension(stages, none);
        }
        self.asm.jump_if(If::Equal, R1, 0, stages.version);
        self.asm.jump(none);
    }

    /// An extension header: its length in 4-byte units is the first byte, the next header's type is
    /// the last. r1 is its own type.
    fn gtp_extension(&mut self, stages: Stages, none: Label) {
        self.asm.jump_if(If::Equal, R1, 0, stages.version);
        let len = self.here(0, 1, none);
        len.byte(&mut self.asm, R1);
        self.asm.jump_if(If::Equal, R1, 0, none);
        self.asm.alu(Op::Left, R1, 2);
        self.asm.alu(Op::Add, R8, R1);
        self.asm.alu(Op::Sub, R8, 1);
        let next = self.fetch(Origin::Current, 0, 1, none);
        next.byte(&mut self.asm, R1);
        self.asm.alu(Op::Add, R8, 1);
    }
}
