//! What is known of the packet that the code is about.
//!
//! The walk's result is one number in r7, so that two ways through the walk that come together are
//! the same to the verifier:
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
//! Most packets are plain: IPv4 without options or IPv6 without extension headers, of TCP or UDP,
//! right behind Ethernet. Their headers are where they always are, so they need no walk: see
//! `plain.rs`.

use super::assembler::{Assembler, Op, R7, R10, Register, Width};

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
pub(super) const LOWEST: i16 = if cfg!(target_endian = "big") { 3 } else { 0 };
pub(super) const TAGS_MASK: i32 = 7;
pub(super) const BACK_MASK: i32 = 0x1f;
pub(super) const NETWORK_MASK: i32 = 0x7fff;
pub(super) const DISTANCE_MASK: i32 = 0xfff;

/// The packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// As r7 says, from the last [`super::emitter::Emitter::recall_view`] on.
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
pub(super) enum Origin {
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
        // The stack is read by aligned numbers only; a frame begins two bytes behind a multiple of
        // four.
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
