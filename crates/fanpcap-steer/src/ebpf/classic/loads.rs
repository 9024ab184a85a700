//! Loads from the frame. For [`Source::Tagged`], the code loads as if the VLAN tag beside the frame
//! were among the frame's bytes.

use super::super::emitter::Emitter;
use super::super::frame::width;
use super::super::stack::LOADED;
use super::{Made, Making, Source, TAG_LEN};
use fanpcap_bpf::assembler::*;

impl Emitter<'_> {
    /// Loads bytes at a constant offset into r1, as a number.
    pub(super) fn absolute(&mut self, filter: &Making<'_>, k: u32, size: u8) -> Made {
        if k > i32::MAX as u32 {
            return match filter.source {
                Source::Frame | Source::Tagged => {
                    Err(filter.refuse("it loads from outside the frame"))
                }
                Source::Socket => self.beside(filter, k, size),
                Source::Sent | Source::Device | Source::Untagged => {
                    self.beside_at_device(filter, k)
                }
            };
        }
        match u16::try_from(k) {
            Ok(offset) if filter.source == Source::Tagged => self.tagged(filter, offset, size),
            Ok(offset) if filter.source == Source::Untagged => self.untagged(filter, offset, size),
            Ok(offset) => self.bytes(filter, offset, size),
            // No frame has a byte at such an offset.
            Err(_) => self.asm.jump(filter.out),
        }
        Ok(())
    }

    pub(super) fn bytes(&mut self, filter: &Making<'_>, offset: u16, size: u8) {
        let [far, done] = self.asm.labels();
        if self.target.is_near(offset, size) {
            self.near(offset, size, far);
            self.in_host_order(size);
            self.asm.jump(done);
            self.asm.bind(far);
        }
        self.copy(i32::from(offset), i32::from(size), LOADED, filter.out);
        self.loaded(size);
        self.asm.bind(done);
    }

    /// Loads into r1, as a number, bytes at the offset in r2. `offset` is the value of r2.
    pub(super) fn load_placed(&mut self, filter: &Making<'_>, offset: impl Value + Copy, size: u8) {
        let again = |asm: &mut Assembler| asm.set(R2, offset);
        self.copy_placed(&again, false, i32::from(size).into(), LOADED, filter.out);
        self.loaded(size);
    }

    /// Loads the copied number into r1.
    pub(super) fn loaded(&mut self, size: u8) {
        self.asm.load(width(size), R1, R10, LOADED);
        self.in_host_order(size);
    }

    /// Converts the bytes in r1 from network byte order to a number.
    pub(super) fn in_host_order(&mut self, size: u8) {
        match size {
            1 => {}
            2 => self.asm.big_endian(R1, 16),
            _ => self.asm.big_endian(R1, 32),
        }
    }

    /// Loads bytes of the tagged frame. The tag is bytes 12 to 15.
    fn tagged(&mut self, filter: &Making<'_>, offset: u16, size: u8) {
        if offset >= 16 {
            return self.bytes(filter, offset - 4, size);
        }
        let end = offset + u16::from(size);
        if end <= 12 {
            return self.bytes(filter, offset, size);
        }
        // r2 gets the bytes before the tag, r1 the bytes of the tag, r0 the bytes behind it.
        let (before, behind) = (12_u16.saturating_sub(offset), end.saturating_sub(16));
        self.asm.set(R0, 0);
        if before > 0 {
            self.several(filter, offset, before);
        } else if behind > 0 {
            self.several(filter, 12, behind);
        }
        let bits = |bytes: u16| 8 * i32::from(bytes);
        let others = 32 + bits(offset.saturating_sub(12));
        self.asm.set(R1, (R9 << others) >> others);
        if behind > 0 {
            self.asm.alu(Op::Left, R1, bits(behind));
        } else {
            self.asm.alu(Op::Right, R1, bits(16 - end));
            self.asm.alu(Op::Left, R0, bits(end - 12));
        }
        self.asm.alu(Op::Or, R1, R0);
    }

    /// Loads one to three bytes as a number into r0.
    fn several(&mut self, filter: &Making<'_>, offset: u16, len: u16) {
        let size = u8::try_from(len).unwrap_or(3);
        self.copy(i32::from(offset), i32::from(size), LOADED, filter.out);
        self.asm.set(R0, 0);
        for at in 0..i16::from(size) {
            self.asm.load(Width::Byte, R1, R10, LOADED + at);
            self.asm.set(R0, (R0 << 8) | R1);
        }
    }

    /// Loads bytes at X + k into r1, as a number.
    pub(super) fn indirect(&mut self, filter: &Making<'_>, k: u32, size: u8) -> Made {
        if k > i32::MAX as u32 {
            return Err(filter.refuse("it loads from outside the frame"));
        }
        let number = k as i32;
        let done = self.asm.label();
        self.behind_ipv4(filter, number, size, done);
        self.asm.set(R2, R8 + number);
        self.asm.jump_if(R2.above(0xffff), filter.out);
        match filter.source {
            Source::Tagged => self.indirect_tagged(filter, size, number, done),
            Source::Untagged => self.indirect_untagged(filter, size, number, done),
            Source::Frame | Source::Socket | Source::Sent | Source::Device => {}
        }
        self.load_placed(filter, R8 + number, size);
        self.asm.bind(done);
        Ok(())
    }

    /// Loads bytes at X + k directly and jumps to `done`, if X is the length of an IPv4 header
    /// without options. Filters for ports load the ports this way.
    fn behind_ipv4(&mut self, filter: &Making<'_>, number: i32, size: u8, done: Label) {
        let tag = match filter.source {
            Source::Untagged => TAG_LEN,
            Source::Frame | Source::Tagged | Source::Socket | Source::Sent | Source::Device => 0,
        };
        let offset = number.checked_add(IPV4_LEN + tag).map(u16::try_from);
        let Some(Ok(offset)) = offset.filter(|_| number >= ETHERNET_LEN) else {
            return;
        };
        if filter.source == Source::Tagged || !self.target.is_near(offset, size) {
            return;
        }
        let other = self.asm.label();
        self.asm.jump_if(R8.is_not(IPV4_LEN), other);
        self.near(offset, size, other);
        self.in_host_order(size);
        self.asm.jump(done);
        self.asm.bind(other);
    }

    /// Loads bytes within or after the tag, and jumps to `done`. Falls through for bytes before the
    /// tag; r2 then has their offset.
    fn indirect_tagged(&mut self, filter: &Making<'_>, size: u8, number: i32, done: Label) {
        let before = self.asm.label();
        self.when(R2.below(16), |this| {
            this.asm.jump_if(R2.at_most(12 - i32::from(size)), before);
            for offset in 13 - u16::from(size)..16 {
                this.when(R2.is(i32::from(offset)), |this| {
                    this.tagged(filter, offset, size);
                    this.asm.jump(done);
                });
            }
            // Never reached, because the loop tries all offsets.
            this.asm.jump(filter.out);
        });
        self.asm.alu(Op::Sub, R2, 4);
        self.load_placed(filter, (R8 + number) - 4, size);
        self.asm.jump(done);
        self.asm.bind(before);
    }
}

const ETHERNET_LEN: i32 = 14;
/// Bytes of an IPv4 header without options.
const IPV4_LEN: i32 = 20;
