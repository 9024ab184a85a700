//! What is known of the packet that the code is about.
//!
//! The walk's result is one number in r7, so that two ways through the walk that come together are the same to the verifier:
//!
//! | bits | |
//! | --- | --- |
//! | 0-7 | upper protocol |
//! | 8-14 | flags, below |
//! | 15-17 | VLAN tags in the bytes |
//! | 18-22 | network header less Ethernet header, halved |
//! | 23-24 | flags, below |
//! | 25-39 | offset of the network header |
//! | 40-51 | transport header less network header, by 4; 0: none |
//! | 52-63 | IPv6's fragment header less network header, by 4; 0: none |
//!
//! Most packets are plain: IPv4 without options or IPv6 without extension headers, of TCP or UDP, right behind Ethernet.
//! Their headers are where they always are, so they need no walk: see `plain.rs`.

use super::assembler::{Assembler, If, Label, Op, R2, R3, R7, R10, Register, Width};
use super::emitter::Emitter;
use super::stack::OUTER;

pub(super) const IPV4: i32 = 1 << 8;
pub(super) const IPV6: i32 = 1 << 9;
/// Any fragment.
pub(super) const FRAGMENT: i32 = 1 << 10;
/// One that does not begin its datagram.
pub(super) const LATER: i32 = 1 << 11;
/// It has an Ethernet header.
pub(super) const LINK: i32 = 1 << 12;
/// It is carried by another packet.
pub(super) const INNER: i32 = 1 << 13;
/// A tag is cut off.
pub(super) const UNTYPED: i32 = 1 << 14;
/// One tag.
pub(super) const TAG: i32 = 1 << 15;
pub(super) const BACK_SHIFT: i32 = 18;
/// It has ports, and they are kept.
pub(super) const WITH_PORTS: i32 = 1 << 23;
/// Where the buffer of a group's program begins with the network header.
pub(super) const LATE_START: i32 = 1 << 24;
pub(super) const NETWORK_SHIFT: i32 = 25;
pub(super) const TRANSPORT_SHIFT: i32 = 40;
pub(super) const FRAGMENT_SHIFT: i32 = 52;
pub(super) const PROTOCOL_MASK: i32 = 0xff;
/// Where the lowest byte of a number is, in memory.
const LOWEST: i16 = if cfg!(target_endian = "big") { 3 } else { 0 };
pub(super) const TAGS_MASK: i32 = 7;
pub(super) const BACK_MASK: i32 = 0x1f;
pub(super) const NETWORK_MASK: i32 = 0x7fff;
const DISTANCE_MASK: i32 = 0xfff;

/// The packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// As r7 says, from the last [`Emitter::recall_view`] on.
    Packed,
    /// The packet's own, as the stack says, where its IP header and its ports are too.
    Kept,
    /// A plain one, whose first bytes are at `at` of `base`.
    Plain { ipv6: bool, base: Register, at: i16 },
}

impl View {
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Plain { .. })
    }
}

/// Where bytes are counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The frame's first byte.
    Frame,
    /// r8.
    Current,
    /// The packet's Ethernet header.
    Link,
    /// What is behind all of its tags, less two: where the type is.
    Type,
    /// The IP header.
    Network,
    /// The header behind it.
    Transport,
    /// IPv6's last fragment header.
    Fragment,
}

/// Bytes that can be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes {
    pub(super) base: Register,
    pub(super) at: i16,
}

impl Bytes {
    pub(super) fn at(self, offset: u8) -> Self {
        Self {
            at: self.at + i16::from(offset),
            ..self
        }
    }

    /// As the machine has it.
    pub(super) fn raw(self, asm: &mut Assembler, width: Width, target: Register) {
        asm.load(width, target, self.base, self.at);
    }

    pub(super) fn byte(self, asm: &mut Assembler, target: Register) {
        asm.load(Width::Byte, target, self.base, self.at);
    }

    pub(super) fn half(self, asm: &mut Assembler, target: Register) {
        asm.load(Width::Half, target, self.base, self.at);
        asm.big_endian(target, 16);
    }

    pub(super) fn word(self, asm: &mut Assembler, target: Register) {
        asm.load(Width::Word, target, self.base, self.at);
        asm.big_endian(target, 32);
    }

    pub(super) fn double(self, asm: &mut Assembler, target: Register) {
        asm.load(Width::Double, target, self.base, self.at);
        asm.big_endian(target, 64);
    }

    /// An Ethernet address; `other` is lost.
    pub(super) fn six(self, asm: &mut Assembler, target: Register, other: Register) {
        // The stack is read by aligned numbers only; a frame begins two bytes behind a multiple of four.
        let skewed = self.base != R10;
        let bits = if (self.at % 4 == 0) == skewed {
            self.half(asm, target);
            self.at(2).word(asm, other);
            32
        } else {
            self.word(asm, target);
            self.at(4).half(asm, other);
            16
        };
        asm.alu(Op::Left, target, bits);
        asm.alu(Op::Or, target, other);
    }
}

impl Emitter<'_> {
    /// Goes to `yes` where the view has one of the flags. r2 is lost.
    pub(super) fn jump_if_any(&mut self, flags: i32, yes: Label) {
        let mut view = R7;
        if self.view == View::Kept {
            self.asm.load(Width::Word, R2, R10, OUTER);
            view = R2;
        }
        self.asm.jump_if(If::AnyBit, view, flags, yes);
    }

    /// Goes to `no` unless the view has one of the flags. r2 is lost.
    pub(super) fn require(&mut self, flags: i32, no: Label) {
        let yes = self.asm.label();
        self.jump_if_any(flags, yes);
        self.asm.jump(no);
        self.asm.bind(yes);
    }

    /// Goes to `no` unless there is a transport header. r2 is lost.
    pub(super) fn require_transport(&mut self, no: Label) {
        match self.view {
            View::Plain { .. } => return,
            View::Packed => distance(&mut self.asm, R2, TRANSPORT_SHIFT),
            View::Kept => {
                self.asm.load(Width::Word, R2, R10, OUTER + 8);
                self.asm.alu(Op::Right, R2, TRANSPORT_SHIFT - 32);
                self.asm.alu(Op::And, R2, DISTANCE_MASK);
            }
        }
        self.asm.jump_if(If::Equal, R2, 0, no);
    }

    /// Goes to `no` unless the upper protocol is one of these. r2 and r3 are lost.
    pub(super) fn require_protocol(&mut self, protocols: &[u8], no: Label) {
        self.protocol(R2);
        self.require_one_of(R2, protocols, no);
    }

    /// Goes to `no` unless the number is one of these: by few jumps, of which the verifier goes both ways. r3 is lost.
    pub(super) fn require_one_of(&mut self, number: Register, of: &[u8], no: Label) {
        let yes = self.asm.label();
        let (low, high): (Vec<u8>, Vec<u8>) = of.iter().partition(|&&one| one < 64);
        for one in high {
            self.asm.jump_if(If::Equal, number, i32::from(one), yes);
        }
        match low[..] {
            [] => {}
            [one] => self.asm.jump_if(If::Equal, number, i32::from(one), yes),
            _ => {
                self.asm.jump_if(If::Greater, number, 63, no);
                self.asm
                    .number(R3, low.iter().fold(0, |mask, one| mask | (1 << one)));
                self.asm.alu(Op::Right, R3, number);
                self.asm.jump_if(If::AnyBit, R3, 1, yes);
            }
        }
        self.asm.jump(no);
        self.asm.bind(yes);
    }

    /// The upper protocol of an IP packet.
    pub(super) fn protocol(&mut self, target: Register) {
        match self.view {
            View::Packed => {
                self.asm.set(target, R7);
                self.asm.alu(Op::And, target, PROTOCOL_MASK);
            }
            View::Kept => self.asm.load(Width::Byte, target, R10, OUTER + LOWEST),
            View::Plain { ipv6, base, at } => {
                let offset = if ipv6 { 20 } else { 23 };
                Bytes { base, at }.at(offset).byte(&mut self.asm, target);
            }
        }
    }
}

/// 16 bits as a load in the machine's order finds them.
pub(super) fn network_order(value: u16) -> i32 {
    i32::from(value.to_be())
}

/// Protocols that have ports.
pub(super) const PORT_PROTOCOLS: [u8; 5] = [6, 17, 33, 132, 136];

/// Bytes of a plain frame that are read at once, ports included.
pub(super) fn plain_len(ipv6: bool) -> u8 {
    if ipv6 { 58 } else { 38 }
}

pub(super) fn distance(asm: &mut Assembler, target: Register, shift: i32) {
    asm.set(target, R7);
    asm.alu(Op::Right, target, shift);
    asm.alu(Op::And, target, DISTANCE_MASK);
}
