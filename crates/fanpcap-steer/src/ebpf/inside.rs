//! Moves from a packet's transport header to the packet that it carries, as `fanpcap_wire` does.

use super::emitter::Emitter;
use super::view::{INNER, Origin};
use super::walk::Stages;
use fanpcap_bpf::assembler::*;
use fanpcap_wire::{GTP_EXTENSIONS_MAX, TZSP_FIELDS_MAX};

/// UDP destination ports of tunnels.
pub(super) const TUNNEL_PORTS: [u16; 8] = [
    VXLAN, VXLAN_OLD, GENEVE, GTP_U, VXLAN_GPE, TZSP, CAPWAP, L2TP,
];
/// UDP ports that announce a tunnel also as the source port.
pub(super) const SESSION_PORTS: [u16; 2] = [CAPWAP, L2TP];
const VXLAN: u16 = 4789;
const VXLAN_GPE: u16 = 4790;
const TZSP: u16 = 37_008;
const CAPWAP: u16 = 5247;
const L2TP: u16 = 1701;
/// Linux's default port of VXLAN.
const VXLAN_OLD: u16 = 8472;
const GENEVE: u16 = 6081;
pub(super) const GTP_U: u16 = 2152;
pub(super) const GTP_C: u16 = 2123;

impl Emitter<'_> {
    /// Skips the header of a tunnel, and jumps to the stage at which the walk of the carried packet
    /// begins. Jumps to `none` if the packet carries no packet.
    pub(super) fn inside(&mut self, stages: Stages, none: Label) {
        let [gre, udp, l2tp] = self.asm.labels();
        self.require_transport(none);
        self.transport_to_current();
        self.protocol(R1);
        self.restart_view(INNER);
        self.asm.jump_if(R1.is(4), stages.ipv4);
        self.asm.jump_if(R1.is(41), stages.ipv6);
        self.asm.jump_if(R1.is(47), gre);
        self.asm.jump_if(R1.is(17), udp);
        self.asm.jump_if(R1.is(137), stages.mpls);
        self.asm.jump_if(R1.is(143), stages.ethernet);
        self.asm.branch(R1.is(115), l2tp, none);
        self.asm.bind(l2tp);
        self.read(R1, Width::Word, Origin::Current, 0, none);
        self.asm.alu(Op::Add, R8, 4);
        self.asm.branch(R1.is_not(0), stages.untyped, none);
        self.asm.bind(gre);
        self.gre(stages, none);
        self.asm.bind(udp);
        self.udp(stages, none);
    }

    /// Skips GRE (RFC 2784, RFC 2890).
    fn gre(&mut self, stages: Stages, none: Label) {
        let header = self.here(0, 4, none);
        header.half(&mut self.asm, R0);
        header.at(2).half(&mut self.asm, R9);
        self.asm.jump_if(R0.has_any(0x4007), none);
        self.asm.alu(Op::Add, R8, 4);
        for flag in [0x8000, 0x2000, 0x1000] {
            self.asm.set(R1, R0 & flag);
            self.asm.unless(R1.is(0), |asm| asm.alu(Op::Add, R8, 4));
        }
        self.asm.jump_if(R9.is(0x0800), stages.ipv4);
        self.asm.jump_if(R9.is(0x86dd), stages.ipv6);
        self.asm.jump_if(R9.is(0x8847), stages.mpls);
        self.asm.jump_if(R9.is(0x8848), stages.mpls);
        self.asm.jump_if(R9.is(0x6558), stages.ethernet);
        self.erspan(stages, none);
    }

    /// Skips ERSPAN (draft-foschiano-erspan). r0 has GRE's flags, r9 has GRE's protocol.
    fn erspan(&mut self, stages: Stages, none: Label) {
        self.asm.unless(R9.is(0x22eb), |asm| {
            asm.jump_if(R9.is_not(0x88be), none);
            asm.alu(Op::And, R0, 0x1000);
            asm.jump_if(R0.is(0), stages.ethernet);
            asm.alu(Op::Add, R8, 8);
            asm.jump(stages.ethernet);
        });
        self.read(R1, Width::Byte, Origin::Current, 11, none);
        self.asm.alu(Op::Add, R8, 12);
        self.asm.set(R1, (R1 & 1) << 3);
        self.asm.alu(Op::Add, R8, R1);
        self.asm.jump(stages.ethernet);
    }

    fn udp(&mut self, stages: Stages, none: Label) {
        let [vxlan, geneve, gtp, generic, tzsp, capwap, l2tp] = self.asm.labels();
        let header = self.first_four(Origin::Current, 0, 8, none);
        header.half(&mut self.asm, R1);
        header.at(2).half(&mut self.asm, R9);
        self.asm.alu(Op::Add, R8, 8);
        self.asm.jump_if(R9.is(i32::from(VXLAN)), vxlan);
        self.asm.jump_if(R9.is(i32::from(VXLAN_OLD)), vxlan);
        self.asm.jump_if(R9.is(i32::from(GENEVE)), geneve);
        self.asm.jump_if(R9.is(i32::from(GTP_U)), gtp);
        self.asm.jump_if(R9.is(i32::from(VXLAN_GPE)), generic);
        self.asm.jump_if(R9.is(i32::from(TZSP)), tzsp);
        for (number, tunnel) in [(CAPWAP, capwap), (L2TP, l2tp)] {
            for port in [R1, R9] {
                self.asm.jump_if(port.is(i32::from(number)), tunnel);
            }
        }
        self.asm.jump(none);
        self.asm.bind(vxlan);
        self.vxlan(stages, none);
        self.asm.bind(geneve);
        self.geneve(stages, none);
        self.asm.bind(gtp);
        self.gtp_user(stages, none);
        self.asm.bind(generic);
        self.vxlan_gpe(stages, none);
        self.asm.bind(tzsp);
        self.tzsp(stages, none);
        self.asm.bind(capwap);
        self.capwap(stages, none);
        self.asm.bind(l2tp);
        self.l2tp(stages, none);
    }

    /// Skips VXLAN-GPE (draft-ietf-nvo3-vxlan-gpe).
    fn vxlan_gpe(&mut self, stages: Stages, none: Label) {
        let said = self.asm.label();
        let header = self.first_four(Origin::Current, 0, 8, none);
        header.byte(&mut self.asm, R1);
        header.at(3).byte(&mut self.asm, R2);
        self.asm.alu(Op::Add, R8, 8);
        self.asm.jump_if(R1.has_any(0x31), none);
        self.asm.branch(R1.has_any(0x04), said, stages.ethernet);
        self.asm.bind(said);
        self.asm.jump_if(R2.is(1), stages.ipv4);
        self.asm.jump_if(R2.is(2), stages.ipv6);
        self.asm.jump_if(R2.is(3), stages.ethernet);
        self.asm.branch(R2.is(4), stages.nsh, none);
    }

    /// Skips TZSP of version 1, if an Ethernet frame follows.
    fn tzsp(&mut self, stages: Stages, none: Label) {
        let end = self.asm.label();
        self.read(R1, Width::Word, Origin::Current, 0, none);
        // TZSP type 0 or 1.
        self.asm.alu(Op::And, R1, !0x0001_0000);
        self.asm.jump_if(R1.is_not(0x0100_0001), none);
        self.asm.alu(Op::Add, R8, 4);
        for _ in 0..TZSP_FIELDS_MAX {
            self.read(R1, Width::Byte, Origin::Current, 0, none);
            self.asm.jump_if(R1.is(1), end);
            self.asm.alu(Op::Add, R8, 1);
            self.unless(R1.is(0), |this| {
                this.read(R1, Width::Byte, Origin::Current, 0, none);
                this.asm.set(R8, (R8 + R1) + 1);
            });
        }
        self.read(R1, Width::Byte, Origin::Current, 0, none);
        self.asm.jump_if(R1.is_not(1), none);
        self.asm.bind(end);
        self.asm.alu(Op::Add, R8, 1);
        self.asm.jump(stages.ethernet);
    }

    /// Skips CAPWAP (RFC 5415), if an Ethernet frame follows.
    fn capwap(&mut self, stages: Stages, none: Label) {
        self.read(R1, Width::Word, Origin::Current, 0, none);
        // Tests the version, the type, and the flags T, F and K.
        self.asm.number(R2, 0xff00_0188);
        self.asm.jump_if(R1.has_any(R2), none);
        self.asm.set(R1, (R1 >> (16 + 3)) << 2);
        self.asm.alu(Op::Add, R8, R1);
        self.asm.jump(stages.ethernet);
    }

    /// Skips L2TP (RFC 2661, RFC 3931).
    fn l2tp(&mut self, stages: Stages, none: Label) {
        let short = self.asm.label();
        self.read(R1, Width::Half, Origin::Current, 0, none);
        self.asm.set(R2, R1 & 0x820f);
        self.asm.unless(R2.is(2), |asm| {
            asm.jump_if(R2.is_not(3), none);
            asm.alu(Op::Add, R8, 8);
            asm.jump(stages.untyped);
        });
        self.asm.alu(Op::Add, R8, 6);
        for (flag, len) in [(0x4000, 2), (0x0800, 4)] {
            self.asm.set(R2, R1 & flag);
            self.asm.unless(R2.is(0), |asm| asm.alu(Op::Add, R8, len));
        }
        self.read(R1, Width::Half, Origin::Current, 0, none);
        self.asm.jump_if(R1.is_not(0xff03), short);
        self.asm.alu(Op::Add, R8, 2);
        self.read(R1, Width::Half, Origin::Current, 0, none);
        self.asm.bind(short);
        // A PPP protocol number below 256 may take one byte. That byte is odd.
        self.asm.alu(Op::Add, R8, 1);
        self.asm.unless(R1.has_any(0x0100), |asm| {
            asm.alu(Op::Add, R8, 1);
            asm.alu(Op::Left, R1, 8);
        });
        self.asm.alu(Op::Right, R1, 8);
        self.asm.jump_if(R1.is(0x21), stages.ipv4);
        self.asm.branch(R1.is(0x57), stages.ipv6, none);
    }

    /// Skips VXLAN (RFC 7348).
    fn vxlan(&mut self, stages: Stages, none: Label) {
        let header = self.first_four(Origin::Current, 0, 8, none);
        header.byte(&mut self.asm, R1);
        self.asm.alu(Op::Add, R8, 8);
        self.asm.branch(R1.has_any(8), stages.ethernet, none);
    }

    /// Skips GENEVE (RFC 8926).
    fn geneve(&mut self, stages: Stages, none: Label) {
        let header = self.first_four(Origin::Current, 0, 8, none);
        header.byte(&mut self.asm, R1);
        header.at(2).half(&mut self.asm, R2);
        self.asm.jump_if(R1.has_any(0xc0), none);
        self.asm.alu(Op::Left, R1, 2);
        self.asm.set(R8, (R8 + R1) + 8);
        self.asm.jump_if(R2.is(0x6558), stages.ethernet);
        self.asm.jump_if(R2.is(0x0800), stages.ipv4);
        self.asm.branch(R2.is(0x86dd), stages.ipv6, none);
    }

    /// Skips GTP-U (3GPP TS 29.281).
    fn gtp_user(&mut self, stages: Stages, none: Label) {
        let longer = self.asm.label();
        let header = self.first_four(Origin::Current, 0, 8, none);
        header.half(&mut self.asm, R9);
        self.asm.set(R1, R9 & 0xf0ff);
        self.asm.jump_if(R1.is_not(0x30ff), none);
        self.asm.alu(Op::Add, R8, 8);
        self.asm.branch(R9.has_any(0x0700), longer, stages.untyped);
        self.asm.bind(longer);
        let optional = self.here(0, 4, none);
        optional.at(3).byte(&mut self.asm, R1);
        self.asm.alu(Op::Add, R8, 4);
        // If the E flag is clear, the byte with the extension's type has no meaning.
        self.asm.alu(Op::And, R9, 0x0400);
        self.asm.jump_if(R9.is(0), stages.untyped);
        for _ in 0..GTP_EXTENSIONS_MAX {
            self.gtp_extension(stages, none);
        }
        self.asm.branch(R1.is(0), stages.untyped, none);
    }

    /// Skips a GTP extension header. r1 has the header's type. The header's first byte is its
    /// length in units of 4 bytes; its last byte is the type of the next header.
    fn gtp_extension(&mut self, stages: Stages, none: Label) {
        self.asm.jump_if(R1.is(0), stages.untyped);
        self.read(R1, Width::Byte, Origin::Current, 0, none);
        self.asm.jump_if(R1.is(0), none);
        self.asm.alu(Op::Left, R1, 2);
        self.asm.set(R8, (R8 + R1) - 1);
        self.read(R1, Width::Byte, Origin::Current, 0, none);
        self.asm.alu(Op::Add, R8, 1);
    }
}
