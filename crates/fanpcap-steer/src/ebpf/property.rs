//! Loads a property of a packet into r1.

use super::emitter::Emitter;
use super::stack::{OUTER, PORTS, STATE};
use super::view::{
    Bytes, FRAGMENT_SHIFT, INNER, IPV6, Origin, PORT_PROTOCOLS, TAG, UNTYPED, View, WITH_PORTS,
};
use crate::ir::Property;
use fanpcap_bpf::assembler::*;

impl Emitter<'_> {
    /// Loads the property into r1 or jumps to `absent`. Clobbers r0 and r2 to r5; if headers are
    /// kept on the stack, clobbers r7, too.
    pub(super) fn property(&mut self, property: Property, absent: Label) {
        match property {
            Property::EtherType => self.ether_type(absent),
            Property::VlanId => self.vlan_id(absent),
            Property::Protocol => {
                self.require_ip(absent);
                self.protocol(R1);
            }
            Property::Tos => self.ip_property((1, Width::Byte), Self::ipv6_tos, absent),
            Property::IpLength => self.ip_property((2, Width::Half), Self::ipv6_length, absent),
            Property::IpId => self.ip_property((4, Width::Half), Self::ipv6_id, absent),
            Property::IpFragment => self.ip_property((6, Width::Half), Self::ipv6_fragment, absent),
            Property::Ttl => self.ip_property((8, Width::Byte), Self::ipv6_hop_limit, absent),
            Property::TcpSource => self.tcp(0, absent),
            Property::TcpDestination => self.tcp(2, absent),
            Property::TcpHeaderLength => {
                self.tcp(12, absent);
                self.asm.set(R1, (R1 >> 12) << 2);
            }
            Property::UdpSource => self.udp_field(0, absent),
            Property::UdpDestination => self.udp_field(2, absent),
            Property::UdpLength => self.udp_field(4, absent),
            Property::IcmpType => self.icmp(0, absent),
            Property::IcmpCode => self.icmp(1, absent),
            Property::Mark => self.load_mark(absent),
            Property::State => self.asm.load(Width::Word, R1, R10, STATE),
            Property::Queue => self.queue(absent),
        }
    }

    fn ether_type(&mut self, absent: Label) {
        self.require_link(absent);
        if !self.view.is_plain() {
            self.jump_if_any(UNTYPED, absent);
        }
        self.read(R1, Width::Half, Origin::Type, 0, absent);
    }

    /// Loads the id of the outermost tag: the tag beside the frame, else the first tag in the
    /// bytes.
    fn vlan_id(&mut self, absent: Label) {
        let [bytes, found] = self.asm.labels();
        self.require_link(absent);
        if self.view == View::Packed {
            self.jump_if_any(INNER, bytes);
        }
        self.tag_beside(bytes);
        self.asm.jump(found);
        self.asm.bind(bytes);
        if self.view.is_plain() {
            self.asm.jump(absent);
        } else {
            self.require(7 * TAG, absent);
            self.read(R1, Width::Half, Origin::Link, 14, absent);
        }
        self.asm.bind(found);
        self.asm.alu(Op::And, R1, 0xfff);
    }

    /// Loads a field of the IPv4 header, or its counterpart in IPv6.
    fn ip_property(
        &mut self,
        (offset, width): (u8, Width),
        ipv6: impl FnOnce(&mut Self, Label),
        absent: Label,
    ) {
        self.require_ip(absent);
        self.by_version(
            |this| this.read(R1, width, Origin::Network, offset, absent),
            |this| ipv6(this, absent),
        );
    }

    fn ipv6_tos(&mut self, absent: Label) {
        self.read(R1, Width::Half, Origin::Network, 0, absent);
        self.asm.set(R1, (R1 >> 4) & 0xff);
    }

    fn ipv6_length(&mut self, absent: Label) {
        self.read(R1, Width::Half, Origin::Network, 4, absent);
        self.asm.alu(Op::Add, R1, 40);
    }

    fn ipv6_id(&mut self, absent: Label) {
        self.require_fragment_header(absent);
        self.read(R1, Width::Word, Origin::Fragment, 4, absent);
    }

    fn ipv6_hop_limit(&mut self, absent: Label) {
        self.read(R1, Width::Byte, Origin::Network, 7, absent);
    }

    /// Loads the flags and the offset of IPv6's fragment header, in the format of IPv4.
    fn ipv6_fragment(&mut self, absent: Label) {
        let [none, done] = self.asm.labels();
        self.require_fragment_header(none);
        if self.asm.is_live() {
            self.read(R1, Width::Half, Origin::Fragment, 2, absent);
            self.asm.set(R2, (R1 & 1) << 13);
            self.asm.set(R1, (R1 >> 3) | R2);
            self.asm.jump(done);
        }
        self.asm.bind(none);
        self.asm.set(R1, 0);
        self.asm.bind(done);
    }

    fn require_fragment_header(&mut self, no: Label) {
        match self.view {
            View::Packed => self.asm.set(R2, R7),
            View::Kept => {
                self.asm.load(Width::Word, R2, R10, OUTER + 8);
                self.asm.alu(Op::Left, R2, 32);
            }
            View::Plain { .. } => return self.asm.jump(no),
        }
        self.asm.alu(Op::Right, R2, FRAGMENT_SHIFT);
        self.asm.jump_if(R2.is(0), no);
    }

    fn tcp(&mut self, offset: u8, absent: Label) {
        self.require_protocol(&[6], absent);
        self.require_transport(absent);
        let header = self.fetch(Origin::Transport, 0, 20, absent);
        header.at(offset).half(&mut self.asm, R1);
    }

    fn udp_field(&mut self, offset: u8, absent: Label) {
        let mut field = self.udp_header(absent).at(offset);
        if offset >= 4 {
            field = self.fetch(Origin::Transport, offset, 2, absent);
        }
        field.half(&mut self.asm, R1);
    }

    /// Returns the ports of the UDP header, or jumps to `absent` if the packet has no such header.
    /// Clobbers r0 to r5.
    pub(super) fn udp_header(&mut self, absent: Label) -> Bytes {
        self.require_protocol(&[17], absent);
        self.require_transport(absent);
        self.first_four(Origin::Transport, 0, 8, absent)
    }

    fn icmp(&mut self, offset: u8, absent: Label) {
        let [six, there] = self.asm.labels();
        if self.view.is_plain() {
            return self.asm.jump(absent);
        }
        self.protocol(R1);
        self.jump_if_any(IPV6, six);
        self.asm.branch(R1.is_not(1), absent, there);
        self.asm.bind(six);
        self.asm.jump_if(R1.is_not(58), absent);
        self.asm.bind(there);
        self.require_transport(absent);
        let header = self.fetch(Origin::Transport, 0, 2, absent);
        header.at(offset).byte(&mut self.asm, R1);
    }

    /// Returns the 4 bytes of the two ports, or jumps to `absent` if the packet has no ports.
    pub(super) fn ports(&mut self, absent: Label) -> Bytes {
        if self.view == View::Kept {
            self.require(WITH_PORTS, absent);
            let at = PORTS;
            return Bytes { base: R10, at };
        }
        if !self.view.is_plain() {
            self.require_transport(absent);
            self.require_protocol(&PORT_PROTOCOLS, absent);
        }
        self.fetch(Origin::Transport, 0, 4, absent)
    }
}
