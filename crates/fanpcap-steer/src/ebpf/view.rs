//! What is known of the packet that the code is about, and how its headers are read.
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

use super::assembler::{
    Assembler, If, Label, Op, R0, R1, R2, R3, R6, R7, R8, R10, Register, Width,
};
use super::emitter::{Emitter, Routine};

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
const TAGS_MASK: i32 = 7;
const BACK_MASK: i32 = 0x1f;
const NETWORK_MASK: i32 = 0x7fff;
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
                    .number(R3, low.iter().fold(0, |mask, one| mask | 1 << one));
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

    /// Makes bytes readable, in place or on the stack. r0 to r5 may be lost, and r7, which is recalled where headers are kept.
    pub(super) fn fetch(&mut self, place: Place, offset: u8, len: u8, missing: Label) -> Bytes {
        if len <= 4 {
            return self.first_four(place, offset, len, missing);
        }
        self.at_hand(place, offset, len).unwrap_or_else(|| {
            let at = self.scratch;
            self.load(place, offset.into(), len, at, missing);
            Bytes { base: R10, at }
        })
    }

    /// Makes the first four readable of bytes that have to be there, 8 at most. Registers as above.
    pub(super) fn first_four(
        &mut self,
        place: Place,
        offset: u8,
        len: u8,
        missing: Label,
    ) -> Bytes {
        self.at_hand(place, offset, len).unwrap_or_else(|| {
            self.word(place, offset.into(), len);
            self.asm.jump_if(If::SignedLess, R0, 0, missing);
            let at = self.scratch + 4;
            self.asm.store(Width::Word, R10, at, R0);
            Bytes { base: R10, at }
        })
    }

    /// What [`Routine::Word`] says of these bytes, in r0.
    fn word(&mut self, place: Place, offset: u16, len: u8) {
        if self.view == View::Kept {
            self.recall(OUTER);
        }
        position(&mut self.asm, self.view, place, offset);
        self.asm.set(R1, R6);
        self.asm.set(R3, i32::from(len) - 1);
        self.routine(Routine::Word);
    }

    /// Bytes that can be read already.
    fn at_hand(&self, place: Place, offset: u8, len: u8) -> Option<Bytes> {
        let at = u16::from(offset);
        if let View::Plain {
            ipv6,
            base,
            at: head,
        } = self.view
        {
            let start = plain_start(place, ipv6) + at;
            if start + u16::from(len) <= u16::from(plain_len(ipv6)) {
                let at = head + i16::try_from(start).unwrap_or(0);
                return Some(Bytes { base, at });
            }
        }
        let is_kept = place == Place::Network && self.view == View::Kept;
        is_kept.then(|| Bytes {
            base: R10,
            at: HEADER + i16::from(offset),
        })
    }

    /// Keeps the IP header and the ports on the stack, for all that comes. What is not there is written as well, for the verifier.
    pub(super) fn keep_headers(&mut self) {
        let (short, network, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.load(Place::Network, 0, 40, HEADER, short);
        self.asm.jump(network);
        self.asm.bind(short);
        self.load(Place::Network, 0, 20, HEADER, network);
        self.asm.bind(network);
        self.word(Place::Transport, 0, 4);
        self.asm.store(Width::Word, R10, PORTS, R0);
        self.asm.jump_if(If::SignedLess, R0, 0, done);
        self.require_transport(done);
        self.require_protocol(&PORT_PROTOCOLS, done);
        self.asm.alu(Op::Or, R7, WITH_PORTS);
        self.asm.bind(done);
    }

    /// Loads bytes of the frame to the stack. Registers as above.
    pub(super) fn load(&mut self, place: Place, offset: u16, len: u8, to: i16, missing: Label) {
        let view = self.view;
        if view == View::Kept {
            self.recall(OUTER);
        }
        let again = move |asm: &mut Assembler| position(asm, view, place, offset);
        again(&mut self.asm);
        let viewed = !view.is_plain() && self.walks;
        self.target.load(
            &mut self.asm,
            &again,
            viewed,
            i32::from(len).into(),
            to,
            missing,
        );
    }

    /// [`Routine::Word`].
    pub(super) fn word_routine(&mut self) {
        let missing = self.asm.label();
        self.asm.set(R7, R2);
        self.asm.set(R8, R3);
        // The verifier wants to know that it is 1 to 8, and so many bytes written.
        self.asm.alu(Op::And, R8, 7);
        self.asm.alu(Op::Add, R8, 1);
        self.asm.store(Width::Double, R10, WORD, 0);
        let again = |asm: &mut Assembler| asm.set(R2, R7);
        again(&mut self.asm);
        self.target
            .load(&mut self.asm, &again, false, R8.into(), WORD, missing);
        self.asm.load(Width::Word, R0, R10, WORD);
        self.asm.exit();
        self.asm.bind(missing);
        self.asm.set(R0, -1);
        self.asm.exit();
    }
}

impl Emitter<'_> {
    /// Puts the offset of the transport header into r2. r3 is lost.
    pub(super) fn position_of_transport(&mut self) {
        position(&mut self.asm, self.view, Place::Transport, 0);
    }
}

/// 16 bits as a load in the machine's order finds them.
pub(super) fn network_order(value: u16) -> i32 {
    i32::from(value.to_be())
}

/// Protocols that have ports.
pub(super) const PORT_PROTOCOLS: [u8; 5] = [6, 17, 33, 132, 136];

/// Where the headers of a plain packet are.
fn plain_start(place: Place, ipv6: bool) -> u16 {
    match place {
        Place::Frame | Place::Current | Place::Link => 0,
        Place::Type => 12,
        Place::Network | Place::Fragment => 14,
        Place::Transport if ipv6 => 54,
        Place::Transport => 34,
    }
}

/// Bytes of a plain frame that are read at once, ports included.
pub(super) fn plain_len(ipv6: bool) -> u8 {
    if ipv6 { 58 } else { 38 }
}

fn distance(asm: &mut Assembler, target: Register, shift: i32) {
    asm.set(target, R7);
    asm.alu(Op::Right, target, shift);
    asm.alu(Op::And, target, DISTANCE_MASK);
}

/// Puts an offset of the frame into r2. r3 is lost.
fn position(asm: &mut Assembler, view: View, place: Place, offset: u16) {
    let offset = i32::from(offset);
    match (place, view) {
        (Place::Frame, _) => return asm.set(R2, offset),
        (Place::Current, _) => asm.set(R2, R8),
        (_, View::Plain { ipv6, .. }) => {
            return asm.set(R2, i32::from(plain_start(place, ipv6)) + offset);
        }
        (_, View::Packed | View::Kept) => {
            asm.set(R2, R7);
            asm.alu(Op::Right, R2, NETWORK_SHIFT);
            asm.alu(Op::And, R2, NETWORK_MASK);
            packed(asm, place);
        }
    }
    if offset != 0 {
        asm.alu(Op::Add, R2, offset);
    }
}

/// From the network header in r2 to another place.
fn packed(asm: &mut Assembler, place: Place) {
    match place {
        Place::Frame | Place::Current | Place::Network => {}
        Place::Link | Place::Type => {
            asm.set(R3, R7);
            asm.alu(Op::Right, R3, BACK_SHIFT);
            asm.alu(Op::And, R3, BACK_MASK);
            asm.alu(Op::Left, R3, 1);
            asm.alu(Op::Sub, R2, R3);
            if place == Place::Type {
                asm.set(R3, R7);
                asm.alu(Op::Right, R3, 13);
                asm.alu(Op::And, R3, TAGS_MASK << 2);
                asm.alu(Op::Add, R2, R3);
                asm.alu(Op::Add, R2, 12);
            }
        }
        Place::Transport | Place::Fragment => {
            let shift = if place == Place::Transport {
                TRANSPORT_SHIFT
            } else {
                FRAGMENT_SHIFT
            };
            distance(asm, R3, shift);
            asm.alu(Op::Left, R3, 2);
            asm.alu(Op::Add, R2, R3);
        }
    }
}

// The stack, counted from its end. The verifier wants each byte written before it is read, and by aligned accesses; a
// first store costs a barrier without `CAP_PERFMON`, unless a helper has written there before.

/// Where a plain frame's head is: two bytes behind a multiple of eight, so that its addresses are aligned.
pub(super) const WINDOW: i16 = -62;
/// The packet's own view, where the window was: its lower half, and 8 bytes on the upper one. At 4 behind a multiple of eight the
/// verifier does not keep track of values.
pub(super) const OUTER: i16 = -52;
/// The view of what it carries, or 0; the same.
pub(super) const CARRIED: i16 = -36;
/// The walk's own view, and its headers: it is called deep, and its stack is short.
pub(super) const WALKED: i16 = -20;
/// See above.
pub(super) const WALKED_SCRATCH: i16 = -64;
/// Of [`Routine::Word`], 8 bytes.
const WORD: i16 = -8;
/// The packet's own ports.
pub(super) const PORTS: i16 = -20;
/// The program's state.
pub(super) const STATE: i16 = -4;
/// 40 bytes for headers.
pub(super) const SCRATCH: i16 = -104;
/// A VLAN id, of a flow; where a key would be, which is not needed at the same time.
pub(super) const VLAN: i16 = -148;
/// The key of a map, up to 24 bytes.
pub(super) const KEY: i16 = -168;
/// The packet's own IP header, behind the 24 bytes that a key has here.
pub(super) const HEADER: i16 = -144;
/// What an alternative has to put back begins here, 16 bytes each, downwards.
pub(super) const SAVED: i16 = -176;
/// The most of these.
pub(super) const SAVED_MAX: i16 = 8;

/// What a function takes of the stack whose lowest byte is here; newer kernels round by less.
const fn frame(lowest: i16) -> i16 {
    (-lowest + 31) / 32 * 32
}

// All that are called in each other have 512 bytes (MAX_BPF_STACK).
const _: () = {
    let main = frame(SAVED - 16 * (SAVED_MAX - 1) - 8);
    let (walk, word) = (frame(WALKED_SCRATCH), frame(WORD));
    let quoted = frame(WALKED_SCRATCH);
    let hash = frame(VLAN);
    let fragments = frame(SCRATCH);
    let pcap = frame(super::classic::LOADED);
    assert!(main + quoted + walk + word <= 512);
    assert!(main + hash + word <= 512);
    assert!(main + fragments + word <= 512);
    assert!(main + pcap <= 512);
};
