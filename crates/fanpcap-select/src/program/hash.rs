//! Code that computes [`crate::bob`].

use fanpcap_bpf::assembler::*;

use super::code::offset;
use crate::bob::{SHIFTS, START};

/// The registers that hold the three sums of the hash.
const SUMS: [Register; 3] = [R1, R2, R3];

/// A word of a key: its offset from a register, and how many of its bytes belong to the key.
#[derive(Clone, Copy)]
pub(super) struct Word {
    pub(super) base: Register,
    pub(super) at: i16,
    /// How many of the word's bytes belong to the key, from the first byte on: 1 to 4.
    pub(super) bytes: u32,
}

impl Word {
    /// A word whose four bytes all belong to the key.
    pub(super) fn whole(base: Register, at: i16) -> Self {
        Self { base, at, bytes: 4 }
    }

    /// Loads the word into r0, the first byte as the lowest.
    fn load(self, asm: &mut Assembler) {
        asm.load(Width::Word, R0, self.base, self.at);
        if cfg!(target_endian = "big") {
            asm.little_endian(R0, 32);
        }
        if self.bytes < 4 {
            asm.alu32(Op::And, R0, ((1_u32 << (8 * self.bytes)) - 1) as i32);
        }
    }
}

/// Computes the hash of a key of `len` bytes into r3. If three words remain after the last block of
/// 12 bytes, only three bytes of the third word belong to the key. Clobbers r0 to r3.
pub(super) fn hash(asm: &mut Assembler, words: &[Word], len: usize, initial: u32) {
    asm.set32(R1, START as i32);
    asm.set32(R2, START as i32);
    asm.set32(R3, initial as i32);
    let (blocks, rest) = words.split_at(len / 12 * 3);
    for block in blocks.chunks_exact(3) {
        add(asm, block);
        mix(asm);
    }
    asm.alu32(Op::Add, R3, offset(len));
    add(asm, rest.get(..2).unwrap_or(rest));
    if let Some(last) = rest.get(2) {
        // The lowest byte of r3 has the key's length, so the word's three bytes go above this byte.
        debug_assert_eq!(len % 12, 11, "the key has three bytes of the last word");
        last.load(asm);
        asm.alu32(Op::Left, R0, 8);
        asm.alu32(Op::Add, R3, R0);
    }
    mix(asm);
}

fn add(asm: &mut Assembler, words: &[Word]) {
    for (sum, word) in SUMS.into_iter().zip(words) {
        word.load(asm);
        asm.alu32(Op::Add, sum, R0);
    }
}

fn mix(asm: &mut Assembler) {
    for (step, shift) in SHIFTS.into_iter().enumerate() {
        let [this, next, last] = [0, 1, 2].map(|place| SUMS[(step + place) % 3]);
        let op = if shift > 0 { Op::Right } else { Op::Left };
        asm.set32(this, (this - next) - last);
        asm.set32(R0, last);
        asm.alu32(op, R0, shift.abs());
        asm.alu32(Op::Xor, this, R0);
    }
}
