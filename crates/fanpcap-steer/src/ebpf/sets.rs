//! Membership of numbers in sets, and of addresses in nets.

use super::emitter::Emitter;
use super::maps::Map;
use super::stack::KEY;
use super::view::{Bytes, IPV4, IPV6, Origin, View};
use crate::hash::halves;
use crate::ir::{Net, Side};
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use std::net::IpAddr;

/// In sets of up to this many numbers, the code compares the number with each of them; larger sets
/// are in a map.
const CHAIN_MAX: usize = 16;

impl Emitter<'_> {
    /// Jumps to `yes` if the set contains the number in r1. With `wide`, the number has two halves,
    /// in r1 and r2.
    pub(super) fn member(&mut self, set: usize, wide: bool, yes: Label, no: Label) {
        let tree = self.tree;
        let Some(numbers) = tree.sets.get(set) else {
            return self.asm.jump(no);
        };
        if numbers.len() > CHAIN_MAX {
            return self.look_up(set, wide, yes, no);
        }
        for &number in numbers {
            let (high, low) = halves(number);
            if wide {
                let differs = self.asm.label();
                self.jump_if_number(If::NotEqual, R1, high, differs);
                self.jump_if_number(If::Equal, R2, low, yes);
                self.asm.bind(differs);
            } else if high == 0 {
                self.jump_if_number(If::Equal, R1, low, yes);
            }
        }
        self.asm.jump(no);
    }

    /// Jumps to `to` if the comparison of a register with a 64-bit number holds. Clobbers r3.
    pub(super) fn jump_if_number(&mut self, what: If, left: Register, number: u64, to: Label) {
        match i32::try_from(number) {
            Ok(number) => self.asm.jump_if(left.compare(what, number), to),
            Err(_) => {
                self.asm.number(R3, number);
                self.asm.jump_if(left.compare(what, R3), to);
            }
        }
    }

    fn look_up(&mut self, set: usize, wide: bool, yes: Label, no: Label) {
        let (high, low) = if wide { (R1, R2) } else { (R3, R1) };
        if !wide {
            self.asm.set(R3, 0);
        }
        self.asm.store(Width::Double, R10, KEY, high);
        self.asm.store(Width::Double, R10, KEY + 8, low);
        self.asm.set(R3, i32::try_from(set).unwrap_or(i32::MAX));
        self.asm.store(Width::Double, R10, KEY + 16, R3);
        let sets = self.maps.of(Map::Sets);
        self.asm.call(MAP_LOOKUP, (map(sets), stack(KEY)));
        self.asm.branch(R0.is_not(0), yes, no);
    }

    /// Returns the packet's addresses, each of 4 or 16 bytes, or jumps to `no` if the packet has
    /// the other IP version.
    pub(super) fn addresses(&mut self, ipv6: bool, no: Label) -> Bytes {
        match self.view {
            View::Packed | View::Kept => self.require(if ipv6 { IPV6 } else { IPV4 }, no),
            View::Plain { ipv6: is, .. } if is != ipv6 => self.asm.jump(no),
            View::Plain { .. } => {}
        }
        let (offset, len) = if ipv6 { (8, 32) } else { (12, 8) };
        self.fetch(Origin::Network, offset, len, no)
    }

    pub(super) fn address(&mut self, side: Side, net: Net, yes: Label, no: Label) {
        let ipv6 = net.address.is_ipv6();
        let both = self.addresses(ipv6, no);
        for (offset, last) in sides(side, ipv6) {
            let outside = self.asm.label();
            self.in_net(both.at(offset), net, outside);
            self.asm.jump(yes);
            self.asm.bind(outside);
            if last {
                self.asm.jump(no);
            }
        }
    }

    /// Jumps to `no` if an address is outside the net. Clobbers r1 to r3.
    pub(super) fn in_net(&mut self, address: Bytes, net: Net, no: Label) {
        let bits = u32::from(net.bits);
        match net.address {
            IpAddr::V4(first) => {
                let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
                address.raw(&mut self.asm, Width::Word, R1);
                let first = first.to_bits() & mask;
                if mask != u32::MAX {
                    self.asm.alu32(Op::And, R1, mask.to_be() as i32);
                }
                self.asm.jump32_if(R1.is_not(first.to_be() as i32), no);
            }
            IpAddr::V6(first) => {
                let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
                let first = first.to_bits() & mask;
                let ((high_mask, low_mask), (high, low)) = (halves(mask), halves(first));
                for (offset, mask, first) in [(0, high_mask, high), (8, low_mask, low)] {
                    if mask != 0 {
                        address.at(offset).raw(&mut self.asm, Width::Double, R1);
                        if mask != u64::MAX {
                            self.asm.number(R2, mask.to_be());
                            self.asm.alu(Op::And, R1, R2);
                        }
                        self.jump_if_number(If::NotEqual, R1, first.to_be(), no);
                    }
                }
            }
        }
    }

    pub(super) fn address_in(
        &mut self,
        side: Side,
        (ipv6, bits): (bool, u8),
        set: usize,
        yes: Label,
        no: Label,
    ) {
        let both = self.addresses(ipv6, no);
        for (offset, last) in sides(side, ipv6) {
            let outside = self.asm.label();
            self.cut(both.at(offset), ipv6, bits);
            self.member(set, ipv6, yes, outside);
            self.asm.bind(outside);
            if last {
                self.asm.jump(no);
            }
        }
    }

    /// Clears all bits of an address except the first `bits`. The result is in r1, or in r1 and r2
    /// for an IPv6 address. Clobbers r3.
    pub(super) fn cut(&mut self, address: Bytes, ipv6: bool, bits: u8) {
        if ipv6 {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(bits.min(128)))
                .unwrap_or(0);
            let (high, low) = halves(mask);
            for (register, offset, mask) in [(R1, 0, high), (R2, 8, low)] {
                address.at(offset).double(&mut self.asm, register);
                if mask != u64::MAX {
                    self.asm.number(R3, mask);
                    self.asm.alu(Op::And, register, R3);
                }
            }
        } else {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(bits.min(32)))
                .unwrap_or(0);
            address.word(&mut self.asm, R1);
            self.asm.alu32(Op::And, R1, mask as i32);
        }
    }
}

/// The offsets of the addresses that `side` selects, each with a flag: whether it is the last
/// offset.
fn sides(side: Side, ipv6: bool) -> impl Iterator<Item = (u8, bool)> {
    let destination = if ipv6 { 16 } else { 4 };
    let source = (side != Side::Destination).then_some((0, side == Side::Source));
    let destination = (side != Side::Source).then_some((destination, true));
    source.into_iter().chain(destination)
}
