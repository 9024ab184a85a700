//! Hashes of the fields of a key.

use super::emitter::Emitter;
use super::view::Origin;
use crate::hash::M1;
use crate::ir::{Key, Property, Side};
use fanpcap_bpf::assembler::*;

impl Emitter<'_> {
    /// Folds the fields of a key into `start`, and puts the hash into r0.
    pub(super) fn key(&mut self, key: Key, start: u64, missing: Label) {
        self.asm.number(R9, start);
        self.fold_property(key, Key::ETHER_TYPE, Property::EtherType, missing);
        for (part, offset) in [(Key::LINK_SOURCE, 6), (Key::LINK_DESTINATION, 0)] {
            if key.has(part) {
                self.require_link(missing);
                let address = self.fetch(Origin::Link, offset, 6, missing);
                address.six(&mut self.asm, R1, R2);
                self.fold_in();
            }
        }
        for (part, side) in [
            (Key::IP_SOURCE, Side::Source),
            (Key::IP_DESTINATION, Side::Destination),
        ] {
            if key.has(part) {
                self.fold_address(side, missing);
            }
        }
        self.fold_property(key, Key::PROTOCOL, Property::Protocol, missing);
        if key.has(Key::ECN) {
            self.property(Property::Tos, missing);
            self.asm.alu(Op::And, R1, 3);
            self.fold_in();
        }
        if key.has(Key::DSCP) {
            self.property(Property::Tos, missing);
            self.asm.alu(Op::Right, R1, 2);
            self.fold_in();
        }
        for (part, offset) in [(Key::SOURCE_PORT, 0), (Key::DESTINATION_PORT, 2)] {
            if key.has(part) {
                let ports = self.ports(missing);
                ports.at(offset).half(&mut self.asm, R1);
                self.fold_in();
            }
        }
        for (part, property) in LAST {
            self.fold_property(key, part, property, missing);
        }
        self.finish(R9);
    }

    fn fold_property(&mut self, key: Key, part: Key, property: Property, missing: Label) {
        if key.has(part) {
            self.property(property, missing);
            self.fold_in();
        }
    }

    /// Folds r1 into the hash in r9.
    fn fold_in(&mut self) {
        self.asm.alu(Op::Xor, R9, R1);
        self.asm.number(R5, M1);
        self.mix(R9);
    }

    fn fold_address(&mut self, side: Side, missing: Label) {
        self.require_ip(missing);
        self.by_version(
            |this| {
                let offset = if side == Side::Source { 12 } else { 16 };
                this.read(R1, Width::Word, Origin::Network, offset, missing);
                this.fold_in();
            },
            |this| {
                let offset = if side == Side::Source { 8 } else { 24 };
                let address = this.fetch(Origin::Network, offset, 16, missing);
                address.double(&mut this.asm, R1);
                this.fold_in();
                address.at(8).double(&mut this.asm, R1);
                this.fold_in();
            },
        );
    }
}

/// The fields that the hash of a key takes last.
const LAST: [(Key, Property); 3] = [
    (Key::ICMP_TYPE, Property::IcmpType),
    (Key::ICMP_CODE, Property::IcmpCode),
    (Key::VLAN, Property::VlanId),
];
