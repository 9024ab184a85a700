//! Reads headers: in place, or through a copy on the stack.

use super::emitter::{Emitter, Routine};
use super::stack::{HEADER, OUTER, PORTS, WORD};
use super::view::{
    BACK_MASK, BACK_SHIFT, Bytes, FRAGMENT_SHIFT, LINK_LEN, NETWORK_MASK, NETWORK_SHIFT, Origin,
    PORT_PROTOCOLS, TAGS_MASK, TRANSPORT_SHIFT, View, WITH_PORTS, distance, plain_len,
};
use fanpcap_bpf::assembler::*;

impl Emitter<'_> {
    /// Makes bytes of the frame readable, in place or on the stack. Jumps to `missing` if the frame
    /// is too short. Clobbers r0 to r5. If headers are kept on the stack, loads the view into r7.
    pub(super) fn fetch(&mut self, place: Origin, offset: u8, len: u8, missing: Label) -> Bytes {
        if len <= 4 {
            return self.first_four(place, offset, len, missing);
        }
        self.at_hand(place, offset, len).unwrap_or_else(|| {
            let at = self.scratch;
            self.load(place, offset.into(), len, at, missing);
            Bytes { base: R10, at }
        })
    }

    /// Loads a number in network byte order. Clobbers the same registers as [`Self::fetch`].
    pub(super) fn read(
        &mut self,
        target: Register,
        width: Width,
        place: Origin,
        offset: u8,
        missing: Label,
    ) {
        let number = self.fetch(place, offset, width.bytes(), missing);
        number.load(&mut self.asm, width, target);
    }

    /// Makes the first four of `len` bytes readable; `len` is at most 8. If the frame lacks any of
    /// the `len` bytes, jumps to `missing`. Clobbers the same registers as [`Self::fetch`].
    pub(super) fn first_four(
        &mut self,
        place: Origin,
        offset: u8,
        len: u8,
        missing: Label,
    ) -> Bytes {
        self.at_hand(place, offset, len).unwrap_or_else(|| {
            self.word(place, offset.into(), len);
            self.asm.jump_if(R0.is_negative(), missing);
            let at = self.scratch + 4;
            self.asm.store(Width::Word, R10, at, R0);
            Bytes { base: R10, at }
        })
    }

    /// Calls [`Routine::Word`] for these bytes; the result is in r0.
    fn word(&mut self, place: Origin, offset: u16, len: u8) {
        if self.view == View::Kept {
            self.recall(OUTER);
        }
        position(&mut self.asm, self.view, place, offset);
        self.routine(Routine::Word, (R6, R2, i32::from(len) - 1));
    }

    /// The place of the bytes, if they are already readable.
    fn at_hand(&self, place: Origin, offset: u8, len: u8) -> Option<Bytes> {
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
        let is_kept = place == Origin::Network && self.view == View::Kept;
        is_kept.then(|| Bytes {
            base: R10,
            at: HEADER + i16::from(offset),
        })
    }

    /// Stores the IP header and the ports on the stack for the later code. If the packet lacks a
    /// field, writes other bytes in its place, because the verifier requires that all bytes that
    /// the code reads were written.
    pub(super) fn keep_headers(&mut self) {
        let [short, network, done] = self.asm.labels();
        self.load(Origin::Network, 0, 40, HEADER, short);
        self.asm.jump(network);
        self.asm.bind(short);
        self.load(Origin::Network, 0, 20, HEADER, network);
        self.asm.bind(network);
        self.word(Origin::Transport, 0, 4);
        self.asm.store(Width::Word, R10, PORTS, R0);
        self.asm.jump_if(R0.is_negative(), done);
        self.require_transport(done);
        self.require_protocol(&PORT_PROTOCOLS, done);
        self.asm.alu(Op::Or, R7, WITH_PORTS);
        self.asm.bind(done);
    }

    /// Copies bytes of the frame to the stack. Clobbers the same registers as [`Self::fetch`].
    pub(super) fn load(&mut self, place: Origin, offset: u16, len: u8, to: i16, missing: Label) {
        let view = self.view;
        if view == View::Kept {
            self.recall(OUTER);
        }
        let again = move |asm: &mut Assembler| position(asm, view, place, offset);
        again(&mut self.asm);
        let viewed = !view.is_plain() && self.walks;
        self.copy_placed(&again, viewed, i32::from(len).into(), to, missing);
    }

    /// Emits [`Routine::Word`].
    pub(super) fn word_routine(&mut self) {
        let missing = self.asm.label();
        self.asm.set(R7, R2);
        self.asm.set(R8, R3);
        // The verifier must be able to prove that the length is 1 to 8 and that as many bytes are
        // written.
        self.asm.set(R8, (R8 & 7) + 1);
        self.asm.store(Width::Double, R10, WORD, 0);
        self.copy(R7, R8, WORD, missing);
        self.asm.load(Width::Word, R0, R10, WORD);
        self.asm.exit();
        self.asm.bind(missing);
        self.asm.exit_with(-1);
    }

    /// Loads the offset of the transport header into r2. Clobbers r3.
    pub(super) fn position_of_transport(&mut self) {
        position(&mut self.asm, self.view, Origin::Transport, 0);
    }
}

/// Offset of a plain packet's header.
fn plain_start(place: Origin, ipv6: bool) -> u16 {
    match place {
        Origin::Frame | Origin::Current | Origin::Link => 0,
        Origin::Type => 12,
        Origin::Network | Origin::Fragment => 14,
        Origin::Transport if ipv6 => 54,
        Origin::Transport => 34,
    }
}

/// Puts into r2 the frame's offset that is `offset` bytes behind `place`. Clobbers r3.
fn position(asm: &mut Assembler, view: View, place: Origin, offset: u16) {
    let offset = i32::from(offset);
    match (place, view) {
        (Origin::Frame, _) => return asm.set(R2, offset),
        (Origin::Current, _) => asm.set(R2, R8),
        (_, View::Plain { ipv6, .. }) => {
            return asm.set(R2, i32::from(plain_start(place, ipv6)) + offset);
        }
        (_, View::Packed | View::Kept) => {
            asm.set(R2, (R7 >> NETWORK_SHIFT) & NETWORK_MASK);
            packed(asm, place);
        }
    }
    if offset != 0 {
        asm.alu(Op::Add, R2, offset);
    }
}

/// Turns the offset of the network header in r2 into the offset of another header.
fn packed(asm: &mut Assembler, place: Origin) {
    match place {
        Origin::Frame | Origin::Current | Origin::Network => {}
        Origin::Link | Origin::Type => {
            asm.set(R3, ((R7 >> BACK_SHIFT) & BACK_MASK) << 1);
            asm.alu(Op::Sub, R2, R3);
            if place == Origin::Link {
                asm.alu(Op::Sub, R2, LINK_LEN);
            } else {
                asm.set(R3, (R7 >> 13) & (TAGS_MASK << 2));
                asm.set(R2, (R2 + R3) - 2);
            }
        }
        Origin::Transport | Origin::Fragment => {
            let shift = if place == Origin::Transport {
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
