//! Emits the code of predicates, which jumps to `yes` or to `no`.

use super::emitter::{Emitter, Routine};
use super::view::{
    Bytes, FRAGMENT, INNER, IPV4, IPV6, LATER, LINK, Origin, TAG, View, network_order,
};
use crate::hash;
use crate::ir::{Comparison, Header, Predicate, Side};
use fanpcap_bpf::assembler::*;

impl<'a> Emitter<'a> {
    pub(super) fn branch(&mut self, predicate: &'a Predicate, yes: Label, no: Label) {
        match predicate {
            Predicate::Constant(value) => self.asm.jump(if *value { yes } else { no }),
            Predicate::Not(of) => self.branch(of, no, yes),
            Predicate::And(one, other) => {
                let both = self.asm.label();
                self.branch(one, both, no);
                self.asm.bind(both);
                self.branch(other, yes, no);
            }
            Predicate::Or(one, other) => {
                let mut alternatives = Vec::new();
                collect(one, &mut alternatives);
                collect(other, &mut alternatives);
                self.any(&alternatives, yes, no);
            }
            Predicate::Xor(one, other) => self.exclusive(one, other, yes, no),
            leaf @ (Predicate::Compare(..)
            | Predicate::Member(..)
            | Predicate::Has(_)
            | Predicate::Address(..)
            | Predicate::AddressIn { .. }
            | Predicate::Port(..)
            | Predicate::Pcap(_)
            | Predicate::Share { .. }
            | Predicate::Rtp
            | Predicate::Rtcp) => {
                self.recall_view();
                self.leaf(leaf, yes, no);
            }
        }
    }

    fn leaf(&mut self, predicate: &Predicate, yes: Label, no: Label) {
        match predicate {
            Predicate::Compare(property, comparison, number) => {
                self.property(*property, no);
                self.compare(*comparison, *number, yes);
                self.asm.jump(no);
            }
            Predicate::Member(property, set) => {
                self.property(*property, no);
                self.member(*set, false, yes, no);
            }
            Predicate::Has(header) => {
                self.has(*header, yes, no);
            }
            Predicate::Address(side, net) => {
                self.address(*side, *net, yes, no);
            }
            Predicate::AddressIn {
                side,
                ipv6,
                bits,
                set,
            } => {
                self.address_in(*side, (*ipv6, *bits), *set, yes, no);
            }
            Predicate::Port(side, port) => {
                self.port(&[(*side, *port)], yes, no);
            }
            Predicate::Pcap(filter) => {
                self.routine(Routine::Pcap(*filter), (R6, 0, 0));
                self.asm.branch(R0.is_not(0), yes, no);
            }
            Predicate::Share { index, of, key } => {
                self.key(*key, hash::SHARE, no);
                self.asm.number(R2, u64::from(*of));
                self.asm.alu(Op::Mod, R0, R2);
                self.asm.number(R2, u64::from(*index));
                self.asm.branch(R0.is(R2), yes, no);
            }
            Predicate::Rtp => {
                self.rtp(yes, no);
            }
            Predicate::Rtcp => {
                self.rtcp(yes, no);
            }
            Predicate::Constant(_)
            | Predicate::Not(_)
            | Predicate::And(..)
            | Predicate::Or(..)
            | Predicate::Xor(..) => {}
        }
    }

    /// Emits an exclusive or. The first result is stored on the stack, so that the code of the
    /// second predicate is emitted only once.
    fn exclusive(&mut self, one: &'a Predicate, other: &'a Predicate, yes: Label, no: Label) {
        let [first, first_not, second, is, is_not] = self.asm.labels();
        self.branch(one, first, first_not);
        // The stored value is 0 or 1. The verifier must not know which, so that both paths merge
        // into one state.
        for (label, value) in [(first, 1), (first_not, 0)] {
            self.asm.bind(label);
            self.asm.load(Width::Word, R1, R6, 16);
            self.asm.set(R2, R1);
            self.asm.set(R1, (R1 ^ value) ^ R2);
            if value == 1 {
                self.asm.jump(second);
            }
        }
        self.asm.bind(second);
        let slot = self.take_slot();
        self.asm.store(Width::Double, R10, slot, R1);
        self.branch(other, is, is_not);
        self.asm.bind(is);
        self.asm.load(Width::Double, R1, R10, slot);
        self.asm.branch(R1.is(0), yes, no);
        self.asm.bind(is_not);
        self.asm.load(Width::Double, R1, R10, slot);
        self.asm.branch(R1.is(0), no, yes);
        self.give_slot_back();
    }

    /// Jumps to `yes` if the comparison of r1 with the number holds.
    fn compare(&mut self, comparison: Comparison, number: u64, yes: Label) {
        let what = match comparison {
            Comparison::Less => If::Less,
            Comparison::LessEqual => If::LessEqual,
            Comparison::Equal => If::Equal,
            Comparison::NotEqual => If::NotEqual,
            Comparison::Greater => If::Greater,
            Comparison::GreaterEqual => If::GreaterEqual,
            Comparison::AnyBit => If::AnyBit,
            Comparison::AllBits => {
                self.asm.number(R2, number);
                self.asm.alu(Op::And, R1, R2);
                If::Equal
            }
        };
        self.jump_if_number(what, R1, number, yes);
    }

    fn has(&mut self, header: Header, yes: Label, no: Label) {
        match header {
            Header::Ipv4 => self.is(IPV4, yes, no),
            Header::Ipv6 => self.is(IPV6, yes, no),
            Header::Ip => self.is(IPV4 | IPV6, yes, no),
            Header::Link => self.is(LINK, yes, no),
            Header::Fragment => self.is(FRAGMENT, yes, no),
            Header::LaterFragment => self.is(LATER, yes, no),
            Header::FirstFragment => {
                let first = self.asm.label();
                self.is(FRAGMENT, first, no);
                self.asm.bind(first);
                self.is(LATER, no, yes);
            }
            Header::Inner if self.view.is_plain() || self.nested => self.asm.jump(no),
            Header::Inner => {
                self.recall_carried();
                self.asm.branch(R1.is_not(0), yes, no);
            }
            Header::Tag => self.has_tag(yes, no),
            Header::LinkBroadcast | Header::LinkMulticast => self.link_group(header, yes, no),
            Header::IpBroadcast | Header::IpMulticast => self.ip_group(header, yes, no),
        }
    }

    /// Jumps to `yes` if the view has one of the flags. For a plain packet, the flags are known at
    /// compile time.
    fn is(&mut self, flags: i32, yes: Label, no: Label) {
        match self.view {
            View::Packed | View::Kept => {
                self.jump_if_any(flags, yes);
                self.asm.jump(no);
            }
            View::Plain { ipv6, .. } => {
                let has = LINK | if ipv6 { IPV6 } else { IPV4 };
                self.asm.jump(if has & flags == 0 { no } else { yes });
            }
        }
    }

    fn has_tag(&mut self, yes: Label, no: Label) {
        let bytes = self.asm.label();
        self.require_link(no);
        if self.view == View::Packed {
            self.jump_if_any(INNER, bytes);
        }
        self.tag_beside(bytes);
        self.asm.jump(yes);
        self.asm.bind(bytes);
        if !self.view.is_plain() {
            self.jump_if_any(7 * TAG, yes);
        }
        self.asm.jump(no);
    }

    fn link_group(&mut self, header: Header, yes: Label, no: Label) {
        self.require_link(no);
        let address = self.fetch(Origin::Link, 0, 6, no);
        if header == Header::LinkMulticast {
            address.byte(&mut self.asm, R1);
            self.asm.jump_if(R1.has_any(1), yes);
        } else {
            address.six(&mut self.asm, R1, R2);
            self.asm.number(R2, 0xffff_ffff_ffff);
            self.asm.jump_if(R1.is(R2), yes);
        }
        self.asm.jump(no);
    }

    fn ip_group(&mut self, header: Header, yes: Label, no: Label) {
        let multicast = header == Header::IpMulticast;
        self.require_ip(no);
        self.by_version(
            |this| {
                this.read(R1, Width::Word, Origin::Network, 16, no);
                if multicast {
                    this.asm.alu(Op::Right, R1, 28);
                }
                let all = if multicast { 0xe } else { -1 };
                this.asm.jump32_if(R1.is(all), yes);
                this.asm.jump(no);
            },
            |this| {
                if multicast {
                    this.read(R1, Width::Byte, Origin::Network, 24, no);
                    this.asm.jump_if(R1.is(0xff), yes);
                }
            },
        );
        self.asm.jump(no);
    }

    /// Jumps to `yes` if one of the predicates holds. Loads the ports once for all predicates that
    /// read them.
    fn any(&mut self, alternatives: &[&'a Predicate], yes: Label, no: Label) {
        let mut ports = Vec::new();
        let mut others = Vec::new();
        for &alternative in alternatives {
            if let Predicate::Port(side, port) = alternative {
                ports.push((*side, *port));
            } else {
                others.push(alternative);
            }
        }
        if !ports.is_empty() {
            let neither = self.asm.label();
            self.recall_view();
            self.port(&ports, yes, neither);
            self.asm.bind(neither);
        }
        for other in others {
            let neither = self.asm.label();
            self.branch(other, yes, neither);
            self.asm.bind(neither);
        }
        self.asm.jump(no);
    }

    fn port(&mut self, wanted: &[(Side, u16)], yes: Label, no: Label) {
        let ports = self.ports(no);
        for (offset, place) in [(0, Side::Source), (2, Side::Destination)] {
            let wanted = wanted
                .iter()
                .filter(|(side, _)| *side == Side::Either || *side == place);
            for (at, (_, port)) in wanted.enumerate() {
                if at == 0 {
                    ports.at(offset).raw(&mut self.asm, Width::Half, R1);
                }
                self.asm.jump_if(R1.is(network_order(*port)), yes);
            }
        }
        self.asm.jump(no);
    }

    /// Falls through for a UDP packet whose ports are both at least 1024 and both have this parity,
    /// whose payload has at least `len` bytes, and begins with version 2. Makes the first 4 bytes
    /// of the payload readable.
    fn real_time(&mut self, parity: i32, len: u8, no: Label) -> Bytes {
        self.require_protocol(&[17], no);
        let ports = self.ports(no);
        for offset in [0, 2] {
            ports.at(offset).half(&mut self.asm, R1);
            self.asm.jump_if(R1.below(1024), no);
            self.asm.alu(Op::And, R1, 1);
            self.asm.jump_if(R1.is_not(parity), no);
        }
        if len > 4 {
            self.fetch(Origin::Transport, 4 + len, 4, no);
        }
        let payload = self.fetch(Origin::Transport, 8, 4, no);
        payload.byte(&mut self.asm, R1);
        self.asm.alu(Op::Right, R1, 6);
        self.asm.jump_if(R1.is_not(2), no);
        payload
    }

    fn rtp(&mut self, yes: Label, no: Label) {
        self.real_time(0, RTP_LEN, no);
        self.asm.jump(yes);
    }

    fn rtcp(&mut self, yes: Label, no: Label) {
        let payload = self.real_time(1, RTCP_LEN, no);
        payload.at(1).byte(&mut self.asm, R1);
        self.asm.jump_if(R1.below(200), no);
        self.asm.branch(R1.at_most(204), yes, no);
    }
}

/// Collects the operands of nested disjunctions.
fn collect<'a>(predicate: &'a Predicate, alternatives: &mut Vec<&'a Predicate>) {
    if let Predicate::Or(one, other) = predicate {
        collect(one, alternatives);
        collect(other, alternatives);
    } else {
        alternatives.push(predicate);
    }
}

/// RFC 3550 sections 5.1 and 6.4.1: minimum header.
const RTP_LEN: u8 = 12;
const RTCP_LEN: u8 = 4;
