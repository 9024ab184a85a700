//! Emits the code with which BPF programs write records into pools.
//!
//! XDP programs and traffic control run with bottom halves disabled, and do not nest on a CPU. So a
//! CPU's lane has only one writer at a time. Other CPUs and the readers use the words of the pool
//! at the same time.
//!
//! Without `CAP_PERFMON`, the verifier also follows branches that no packet can take, on which it
//! forgets the bounds of the compared number. So lengths are bounded by a mask just before their
//! use. The offset of a record is read from the lane just before it is added to the block's
//! address, because all paths to the addition must give the offset the same bounds.

use super::layout::{
    self, BLOCKS_MAX, HEAD, INDEX_BITS, PoolShape, SPARE, WORDS, WRITER_ENTRY, reader, readers_at,
    writer,
};
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;

/// The most bytes of a packet in a short record.
pub const SHORT: i32 = layout::SHORT as i32;

/// A BPF program tries so often to take a block of a word. Each failure means that another CPU has
/// taken the same block in the same moment. After a failure, each CPU tries another block.
const TRIES: usize = 4;

/// Offset on the stack of the calling code: a number of 32 bits whose lower bits are the lane.
pub const PLACE: i16 = -4;
/// Offset on the stack: the slot, 32 bits.
pub const SLOT: i16 = -28;
/// Offset on the stack: a place of 32 bits for the numbers of entries.
pub const KEY: i16 = -36;

/// The code of a BPF program that writes into pools of one shape.
#[derive(Clone, Copy, Debug)]
pub struct ProgramWriter {
    /// The shape of the pools.
    pub shape: PoolShape,
    /// The index of the BPF program's map of pools, which has a pool for each slot.
    pub pools: usize,
}

impl ProgramWriter {
    /// Looks up an entry of the slot's pool. The entry's number is on the stack at [`KEY`]. Puts
    /// the entry's address into r0, or jumps to `missing` if there is none.
    fn entry(self, asm: &mut Assembler, missing: Label) {
        asm.call(MAP_LOOKUP, (map(self.pools), stack(SLOT)));
        asm.jump_if(R0.is(0), missing);
        asm.call(MAP_LOOKUP, (R0, stack(KEY)));
        asm.jump_if(R0.is(0), missing);
    }

    /// Puts the lane's row into r7. r1 is the lane.
    pub fn find_lane(self, asm: &mut Assembler, missing: Label) {
        asm.set(R7, (R1 + 1) * WRITER_ENTRY as i32);
        asm.store(Width::Word, R10, KEY, 0);
        self.entry(asm, missing);
        asm.alu(Op::Add, R0, R7);
        asm.set(R7, R0);
    }

    /// The greatest offset at which a record with so many bytes of a packet may begin.
    fn last_offset(self, captured: i32) -> i32 {
        layout::last_offset(self.shape.block_len(), captured.unsigned_abs()) as i32
    }

    /// Makes the lane's block have room for a record with r8 bytes of a packet. Takes another block
    /// by the function `take_block` if the lane's block has no room, or jumps to `none` if no block
    /// is free. `bounds` are the bounds of r8, from [`SHORT`] on: a block that has no room for the
    /// first bound of r8 is left. Expects the context in r6 and the lane's row in r7; clobbers r9.
    pub fn make_room(self, asm: &mut Assembler, bounds: &[i32], take_block: Label, none: Label) {
        let enough = asm.label();
        asm.set(R9, self.last_offset(SHORT));
        for (&shorter, &longer) in bounds.iter().zip(bounds.iter().skip(1)) {
            asm.when(R8.above(shorter), |asm| {
                asm.set(R9, self.last_offset(longer))
            });
        }
        load_offset(asm, self.shape);
        asm.jump_if(R1.at_most(R9), enough);
        asm.load(Width::Word, R2, R10, SLOT);
        asm.load(Width::Word, R3, R10, PLACE);
        asm.call_function(take_block, (R6, R2, R3));
        asm.jump_if(R0.is(0), none);
        asm.bind(enough);
    }

    /// Puts the address of the next record into r9, for a record with at most `captured` bytes of a
    /// packet. Expects the block's address in r0.
    pub fn address(self, asm: &mut Assembler, captured: i32, none: Label) {
        load_offset(asm, self.shape);
        asm.jump_if(R1.above(self.last_offset(captured)), none);
        asm.set(R9, R0 + R1);
    }

    /// Puts the address of the lane's block into r0.
    pub fn block(self, asm: &mut Assembler, none: Label) {
        asm.load(Width::Word, R1, R7, writer::BLOCK);
        // Entry 0 has the words.
        asm.alu(Op::Add, R1, 1);
        asm.store(Width::Word, R10, KEY, R1);
        self.entry(asm, none);
    }

    /// Emits the BPF function that takes the lowest free block for a lane. r1 is the context, r2
    /// the slot, and r3 a number whose lower bits are the lane. The function returns 0 if no block
    /// is free. It is a function of its own because the verifier would otherwise walk this code
    /// once for each path to it, which were most of its steps.
    ///
    /// Looks through the words in order, and takes back the blocks of a word that readers have
    /// returned before it takes a block of this word. The words are not visited in a loop: the
    /// verifier would follow the loop beyond its end.
    pub fn take_block(self, asm: &mut Assembler) {
        let [none, taken] = asm.labels();
        asm.store(Width::Word, R10, SLOT, R2);
        asm.store(Width::Word, R10, PLACE, R3);
        asm.set(R1, R3 & (self.shape.lanes() as i32 - 1));
        self.find_lane(asm, none);
        self.entry(asm, none);
        asm.set(R9, R0 + readers_at(self.shape.lanes()) as i32);
        for (at, first) in (0..).step_by(8).zip((0..).step_by(64)).take(WORDS) {
            let [next, mine] = asm.labels();
            take_back(asm, at);
            asm.load(Width::Double, R1, R0, writer::FREE + at);
            take_lowest(asm, at, mine, next);
            for _ in 1..TRIES {
                prefer_own(asm);
                take_lowest(asm, at, mine, next);
            }
            asm.jump(next);
            asm.bind(mine);
            asm.set(R3, R2);
            asm.fetch_or(R0, writer::USED + at, R3);
            asm.set(R5, first);
            asm.jump(taken);
            asm.bind(next);
        }
        asm.bind(none);
        asm.exit_with(0);
        asm.bind(taken);
        bit_number(asm);
        asm.alu(Op::Add, R2, R5);
        enter(asm, self.shape);
        asm.exit_with(1);
    }
}

/// Puts the position's offset in its block into r1. Expects the lane's row in r7.
fn load_offset(asm: &mut Assembler, shape: PoolShape) {
    asm.load(Width::Double, R1, R7, writer::POSITION);
    asm.alu(Op::And, R1, shape.block_len() as i32 - 1);
}

/// Moves the lane to the block with the index r2.
fn enter(asm: &mut Assembler, shape: PoolShape) {
    let shift = shape.block_len().trailing_zeros() as i32;
    asm.store(Width::Word, R7, writer::BLOCK, R2);
    load_offset(asm, shape);
    // The end of the block before, in units of 8 bytes.
    asm.set(R3, (R1 << (INDEX_BITS as i32 - 3)) | R2);
    asm.load(Width::Double, R4, R7, writer::POSITION);
    asm.set(R4, (((R4 >> shift) + 1) & (BLOCKS_MAX as i32 - 1)) << 2);
    asm.set(R5, R7 + R4);
    asm.store(Width::Word, R5, writer::TABLE, R3);
    asm.set(R2, shape.block_len() as i32);
    asm.alu(Op::Sub, R2, R1);
    asm.fetch_add(R7, writer::POSITION, R2);
}

/// Takes back the blocks of the word at offset `at` that readers have returned. Expects the row
/// of the writer's words in r0, and of the readers' in r9. A block counts only if it is in use: a
/// process may set any bits. The bits are first taken out of the used blocks, and then added to the
/// free blocks, so that no two CPUs add the same block.
fn take_back(asm: &mut Assembler, at: i16) {
    asm.load(Width::Double, R1, R9, reader::RETURNED + at);
    asm.unless(R1.is(0), |asm| {
        asm.set(R1, 0);
        asm.exchange(R9, reader::RETURNED + at, R1);
        asm.set(R2, R1 ^ -1);
        asm.fetch_and(R0, writer::USED + at, R2);
        asm.alu(Op::And, R2, R1);
        asm.fetch_or(R0, writer::FREE + at, R2);
    });
}

/// Tries to take the lowest of the blocks in r1, which were free in the word at offset `at`. Jumps
/// to `mine` with the block's bit in r2, or to `next` if there is no block in r1. Falls through if
/// another CPU has taken the block, with the word's free blocks in r1.
fn take_lowest(asm: &mut Assembler, at: i16, mine: Label, next: Label) {
    asm.jump_if(R1.is(0), next);
    asm.set(R2, R1);
    asm.alu(Op::Negate, R2, 0);
    asm.alu(Op::And, R2, R1);
    asm.set(R3, R2 ^ -1);
    asm.fetch_and(R0, writer::FREE + at, R3);
    asm.set(R1, R3);
    asm.alu(Op::And, R3, R2);
    asm.jump_if(R3.is_not(0), mine);
}

/// Leaves only those of the blocks in r1 whose number is at least that of the lane, if there are
/// any. So CPUs that have tried to take the same block next try different blocks.
fn prefer_own(asm: &mut Assembler) {
    asm.load(Width::Word, R4, R10, PLACE);
    asm.alu(Op::And, R4, 63);
    asm.set(R3, -1);
    asm.set(R3, (R3 << R4) & R1);
    asm.unless(R3.is(0), |asm| asm.set(R1, R3));
}

/// Replaces r2, which has one bit, by the number of this bit. A comparison for each power of two
/// would multiply the paths that the verifier walks.
fn bit_number(asm: &mut Assembler) {
    asm.alu(Op::Sub, R2, 1);
    asm.set(R1, R2 >> 1);
    asm.number(R3, 0x5555_5555_5555_5555);
    asm.alu(Op::And, R1, R3);
    asm.alu(Op::Sub, R2, R1);
    asm.number(R3, 0x3333_3333_3333_3333);
    asm.set(R1, (R2 >> 2) & R3);
    asm.set(R2, (R2 & R3) + R1);
    asm.set(R1, R2 >> 4);
    asm.alu(Op::Add, R2, R1);
    asm.number(R3, 0x0f0f_0f0f_0f0f_0f0f);
    asm.alu(Op::And, R2, R3);
    asm.number(R3, 0x0101_0101_0101_0101);
    asm.set(R2, (R2 * R3) >> 56);
}

/// Publishes the record with r8 bytes of a packet: advances the lane's position over it. Leaves the
/// new position in r8. The addition is a full barrier. So a reader that sees the position sees the
/// record, and later code sees whether the reader waits.
pub fn publish(asm: &mut Assembler) {
    asm.set(R8, (R8 + ((HEAD + SPARE) as i32 + 7)) & !7);
    asm.set(R1, R8);
    asm.fetch_add(R7, writer::POSITION, R1);
    asm.alu(Op::Add, R8, R1);
}
