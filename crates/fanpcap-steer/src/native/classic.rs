//! Classic BPF, interpreted: for a program's pcap filters.
//!
//! The machine of McCanne and Jacobson, "The BSD Packet Filter" (1993). A load from outside of the frame, a division by zero and what is
//! no instruction end with 0: not taken. Shifts are modulo 32, as the kernel's are. There are no ancillary loads:
//! the frame is read with its tag in the bytes.

use fanpcap_wire::Frame;

use crate::ir::Classic;

// Classes, modes, sources (linux/bpf_common.h).
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;
const X: u16 = 0x08;
const RET_K: u16 = 0x06;
const RET_A: u16 = 0x16;
const TAX: u16 = 0x07;
const TXA: u16 = 0x87;

/// How many of the frame's bytes the filter takes, 0 for none. `length` is the frame's on the wire, without a tag beside it.
pub(super) fn run(code: &[Classic], frame: &Frame<'_>, length: u32) -> u32 {
    let mut machine = Machine {
        a: 0,
        x: 0,
        memory: [0; 16],
        frame: Tagged::of(frame, length),
    };
    machine.run(code).unwrap_or(0)
}

/// A frame with its tag where it was on the wire.
struct Tagged<'f> {
    addresses: &'f [u8],
    tag: [u8; 4],
    tag_len: usize,
    behind: &'f [u8],
    length: u32,
}

impl<'f> Tagged<'f> {
    fn of(frame: &Frame<'f>, length: u32) -> Self {
        // A tag stands behind the addresses; less than Ethernet's header has none.
        let tag = frame.tag.filter(|_| frame.bytes.len() >= 14);
        let (addresses, behind) = frame
            .bytes
            .split_at_checked(12)
            .unwrap_or((frame.bytes, &[]));
        let tag_bytes = tag.map_or([0; 4], |tag| {
            let ([a, b], [c, d]) = (tag.tpid.to_be_bytes(), tag.tci.to_be_bytes());
            [a, b, c, d]
        });
        Self {
            addresses,
            tag: tag_bytes,
            tag_len: if tag.is_some() { 4 } else { 0 },
            behind,
            length: length.saturating_add(if tag.is_some() { 4 } else { 0 }),
        }
    }

    fn byte(&self, at: usize) -> Option<u32> {
        let byte = match at.checked_sub(self.addresses.len()) {
            None => self.addresses.get(at),
            Some(at) if at < self.tag_len => self.tag.get(at),
            Some(at) => self.behind.get(at - self.tag_len),
        };
        byte.copied().map(u32::from)
    }

    /// A load of the size that `code` tells.
    fn load(&self, code: u16, at: u32) -> Option<u32> {
        let size = match code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => return None,
        };
        let at = usize::try_from(at).ok()?;
        (at..at.checked_add(size)?).try_fold(0, |value, at| Some((value << 8) | self.byte(at)?))
    }
}

struct Machine<'f> {
    a: u32,
    x: u32,
    memory: [u32; 16],
    frame: Tagged<'f>,
}

impl Machine<'_> {
    /// Jumps go forward only, so this ends.
    fn run(&mut self, code: &[Classic]) -> Option<u32> {
        let mut at = 0_usize;
        loop {
            let instruction = code.get(at)?;
            at += 1;
            match instruction.code & 0x07 {
                RET => return self.returned(instruction),
                JMP => at = at.checked_add(self.jump(instruction)?)?,
                _ => self.step(instruction)?,
            }
        }
    }

    fn returned(&self, instruction: &Classic) -> Option<u32> {
        match instruction.code {
            RET_K => Some(instruction.k),
            RET_A => Some(self.a),
            _ => None,
        }
    }

    fn operand(&self, instruction: &Classic) -> u32 {
        if instruction.code & X == 0 {
            instruction.k
        } else {
            self.x
        }
    }

    fn jump(&self, instruction: &Classic) -> Option<usize> {
        let operand = self.operand(instruction);
        let is_taken = match instruction.code & 0xf0 {
            0x00 => return usize::try_from(instruction.k).ok(),
            0x10 => self.a == operand,
            0x20 => self.a > operand,
            0x30 => self.a >= operand,
            0x40 => self.a & operand != 0,
            _ => return None,
        };
        let by = if is_taken {
            instruction.jt
        } else {
            instruction.jf
        };
        Some(by.into())
    }

    fn step(&mut self, instruction: &Classic) -> Option<()> {
        let Classic { code, k, .. } = *instruction;
        match code & 0x07 {
            LD => self.a = self.loaded(code, k)?,
            LDX => self.x = self.loaded_index(code, k)?,
            ST => *self.memory.get_mut(slot(k)?)? = self.a,
            STX => *self.memory.get_mut(slot(k)?)? = self.x,
            ALU => self.a = self.computed(instruction)?,
            _ if code == TAX => self.x = self.a,
            _ if code == TXA => self.a = self.x,
            _ => return None,
        }
        Some(())
    }

    fn loaded(&self, code: u16, k: u32) -> Option<u32> {
        match code & 0xe0 {
            IMM => Some(k),
            ABS => self.frame.load(code, k),
            IND => self.frame.load(code, self.x.checked_add(k)?),
            MEM => self.memory.get(slot(k)?).copied(),
            LEN => Some(self.frame.length),
            _ => None,
        }
    }

    fn loaded_index(&self, code: u16, k: u32) -> Option<u32> {
        match code & 0xe0 {
            IMM => Some(k),
            MEM => self.memory.get(slot(k)?).copied(),
            LEN => Some(self.frame.length),
            // The length of IPv4's header, in one instruction.
            MSH => Some((self.frame.byte(slot(k)?)? & 0x0f) << 2),
            _ => None,
        }
    }

    fn computed(&self, instruction: &Classic) -> Option<u32> {
        let (a, operand) = (self.a, self.operand(instruction));
        Some(match instruction.code & 0xf0 {
            0x00 => a.wrapping_add(operand),
            0x10 => a.wrapping_sub(operand),
            0x20 => a.wrapping_mul(operand),
            0x30 => a.checked_div(operand)?,
            0x40 => a | operand,
            0x50 => a & operand,
            0x60 => a.wrapping_shl(operand),
            0x70 => a.wrapping_shr(operand),
            0x80 => a.wrapping_neg(),
            0x90 => a.checked_rem(operand)?,
            0xa0 => a ^ operand,
            _ => return None,
        })
    }
}

fn slot(k: u32) -> Option<usize> {
    usize::try_from(k).ok()
}
