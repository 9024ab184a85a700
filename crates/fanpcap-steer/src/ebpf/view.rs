//! The view: all facts about the current packet that the code has found.
//!
//! The walk's result is one number in r7, so that two paths through the walk merge into one state
//! of the verifier:
//!
//! | bits | |
//! | --- | --- |
//! | 0-7 | upper protocol |
//! | 8-14 | flags, below |
//! | 15-17 | VLAN tags in the bytes |
//! | 18-22 | network header minus the end of the Ethernet header, halved |
//! | 23-24 | flags, below |
//! | 25-39 | offset of the network header; without an IP packet, of the Ethernet header's end |
//! | 40-51 | transport header minus network header, divided by 4; 0: none |
//! | 52-63 | IPv6's fragment header minus network header, divided by 4; 0: none |
//!
//! If the walk ends at untyped payload, the view has no IP packet, and bits 40-63 are the offset of
//! the payload (`untyped.rs`).
//!
//! Most packets are plain: IPv4 without options or IPv6 without extension headers, with TCP or UDP,
//! right behind the Ethernet header. Their headers have fixed offsets, so plain packets need no
//! walk (`plain.rs`).

use fanpcap_bpf::assembler::*;

pub(super) const IPV4: i32 = 1 << 8;
pub(super) const IPV6: i32 = 1 << 9;
/// Any fragment.
pub(super) const FRAGMENT: i32 = 1 << 10;
/// A fragment that does not begin its datagram.
pub(super) const LATER: i32 = 1 << 11;
/// The packet has an Ethernet header.
pub(super) const LINK: i32 = 1 << 12;
/// Another packet carries this packet.
pub(super) const INNER: i32 = 1 << 13;
/// The frame ends within a tag.
pub(super) const UNTYPED: i32 = 1 << 14;
/// The value that one VLAN tag adds to the view.
pub(super) const TAG: i32 = 1 << 15;
pub(super) const BACK_SHIFT: i32 = 18;
/// The packet has ports, and the ports are on the stack.
pub(super) const WITH_PORTS: i32 = 1 << 23;
/// During the walk, the bit of [`WITH_PORTS`] has another meaning: the walk accepts an IP packet
/// only if its whole header is consistent.
pub(super) const CHECKED: i32 = WITH_PORTS;
/// The buffer of a group's BPF program begins at the network header.
pub(super) const LATE_START: i32 = 1 << 24;
pub(super) const NETWORK_SHIFT: i32 = 25;
pub(super) const LINK_LEN: i32 = 14;
pub(super) const TRANSPORT_SHIFT: i32 = 40;
pub(super) const FRAGMENT_SHIFT: i32 = 52;
pub(super) const PROTOCOL_MASK: i32 = 0xff;
/// Offset of a number's lowest byte in memory.
pub(super) const LOWEST: i16 = if cfg!(target_endian = "big") { 3 } else { 0 };
pub(super) const TAGS_MASK: i32 = 7;
pub(super) const BACK_MASK: i32 = 0x1f;
pub(super) const NETWORK_MASK: i32 = 0x7fff;
pub(super) const DISTANCE_MASK: i32 = 0xfff;

/// The place where the code finds the headers of the current packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// The headers are at the offsets in r7, which [`super::emitter::Emitter::recall_view`] has
    /// loaded.
    Packed,
    /// The headers are those of the packet itself, not of a carried packet. The stack holds the
    /// view, the IP header and the ports.
    Kept,
    /// The packet is plain; its first bytes are at `base` + `at`.
    Plain { ipv6: bool, base: Register, at: i16 },
}

impl View {
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Plain { .. })
    }
}

/// The point from which an offset counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The frame's first byte.
    Frame,
    /// r8.
    Current,
    /// The packet's Ethernet header.
    Link,
    /// The Ethernet type behind all VLAN tags.
    Type,
    /// The IP header.
    Network,
    /// The transport header.
    Transport,
    /// IPv6's last fragment header.
    Fragment,
}

/// Bytes that the code can load, from `base` + `at` on.
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

    /// Loads a number in the machine's byte order.
    pub(super) fn raw(self, asm: &mut Assembler, width: Width, target: Register) {
        asm.load(width, target, self.base, self.at);
    }

    /// Loads a number in network byte order.
    pub(super) fn load(self, asm: &mut Assembler, width: Width, target: Register) {
        asm.load_big_endian(width, target, self.base, self.at);
    }

    pub(super) fn byte(self, asm: &mut Assembler, target: Register) {
        self.load(asm, Width::Byte, target);
    }

    pub(super) fn half(self, asm: &mut Assembler, target: Register) {
        self.load(asm, Width::Half, target);
    }

    pub(super) fn word(self, asm: &mut Assembler, target: Register) {
        self.load(asm, Width::Word, target);
    }

    pub(super) fn double(self, asm: &mut Assembler, target: Register) {
        self.load(asm, Width::Double, target);
    }

    /// Loads an Ethernet address; clobbers `other`.
    pub(super) fn six(self, asm: &mut Assembler, target: Register, other: Register) {
        // The verifier allows only aligned reads of the stack. A frame on the stack begins two
        // bytes beyond a multiple of four.
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
        asm.set(target, (target << bits) | other);
    }
}

/// A 16-bit number in network order, as a load in the machine's byte order returns it.
pub(super) fn network_order(value: u16) -> i32 {
    i32::from(value.to_be())
}

pub(super) const PORT_PROTOCOLS: [u8; 5] = [6, 17, 33, 132, 136];

/// How many bytes of a plain frame the code reads at once: up to the end of the ports.
pub(super) fn plain_len(ipv6: bool) -> u8 {
    if ipv6 { 58 } else { 38 }
}

pub(super) fn distance(asm: &mut Assembler, target: Register, shift: i32) {
    asm.set(target, (R7 >> shift) & DISTANCE_MASK);
}
