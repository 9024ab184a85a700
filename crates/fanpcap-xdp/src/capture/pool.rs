//! Wakes readers of pools, and bounds the lengths of records.

use super::{Capture, POOLS, Side};
use crate::layout::{BELLS_MAP, POOLS_MAP, RECEIVED_LONGEST, SENT_LONGEST};
use crate::layout::{first_bell, members, row};
use fanpcap_bpf::MapSpec;
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use fanpcap_ring::pool::NEVER;
use fanpcap_ring::pool::program::{ProgramWriter, SHORT, SLOT};

/// Offset on the stack, which [`super::deliver`] lays out: the packet's stamp.
pub(super) const STAMP: i16 = -16;

/// The indices of the bells in [`super::Capture::maps`].
const BELLS: usize = POOLS + 1;
const FIRST_BELL: usize = POOLS + 2;

/// The maps with the indices from [`POOLS`] on.
pub(super) fn maps() -> [MapSpec; 3] {
    [members(POOLS_MAP), members(BELLS_MAP), first_bell()]
}

impl Capture {
    /// The code that writes into the members' pools.
    pub(super) fn writer(self) -> ProgramWriter {
        ProgramWriter {
            shape: self.shape,
            pools: POOLS,
        }
    }

    /// The bounds of a packet's bytes in a record, from the shortest record's on. Each is one less
    /// than a power of two, for a mask. A block that has no room for a record of the bound is left,
    /// so a bound that is much longer than a record wastes memory.
    pub(super) fn bounds(self) -> Vec<i32> {
        let half = self.shape.block_len() as i32 / 2 - 1;
        let sent = (self.side == Side::Sent).then_some(half.min(SENT_LONGEST));
        [SHORT, RECEIVED_LONGEST].into_iter().chain(sent).collect()
    }
}

/// Wakes the reader if it waits for the position in r8. Expects the row of slot and lane in r0.
pub(super) fn wake(asm: &mut Assembler) {
    ring(asm, R8.below(R1));
}

/// Wakes the reader if it waits, because a packet has no room. All CPUs share the bell, so a packet
/// does not ring it while the reader does not wait. Expects the row of slot and lane in r0.
pub(super) fn wake_for_drop(asm: &mut Assembler) {
    const _: () = assert!(NEVER == u64::MAX);
    ring(asm, R1.is(-1));
}

/// Rings the member's bell: the reader's descriptor becomes readable. Does nothing if `sleeps` is
/// true when r1 has the row's position at which the reader is woken. Takes this position out, so
/// the reader is woken once.
fn ring(asm: &mut Assembler, sleeps: Condition) {
    let done = asm.label();
    asm.load(Width::Double, R1, R0, row::WAKE_AT);
    asm.jump_if(sleeps, done);
    asm.set(R1, -1);
    asm.exchange(R0, row::WAKE_AT, R1);
    asm.jump_if(R1.is(-1), done);
    // Any 8 bytes of the stack make the record.
    asm.load(Width::Word, R1, R10, SLOT);
    asm.when(R1.is(0), |asm| {
        asm.call(
            RINGBUF_OUTPUT,
            (map(FIRST_BELL), stack(STAMP), 8, RB_FORCE_WAKEUP),
        );
        asm.jump(done);
    });
    asm.call(MAP_LOOKUP, (map(BELLS), stack(SLOT)));
    asm.jump_if(R0.is(0), done);
    asm.call(RINGBUF_OUTPUT, (R0, stack(STAMP), 8, RB_FORCE_WAKEUP));
    asm.bind(done);
}
