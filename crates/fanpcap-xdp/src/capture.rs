//! The capture: code that counts, stamps and filters a packet, and copies it into a member's pool.
//!
//! Since Linux 5.18, each kernel's verifier accepts at least one of the [`Variant`]s together with
//! the steering program's code. To load this code, a process needs only `CAP_BPF` and
//! `CAP_NET_ADMIN`.

mod copy;
mod sent;
mod deliver;

use crate::layout::{self, BELLS_MAP, FILTERS_MAP, POOLS_MAP, SENT_FILTERS_MAP};
use crate::layout::{RECEIVED_LONGEST, SENT_LONGEST, ledger, settings};
use deliver::Delivering;
use fanpcap_bpf::MapSpec;
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use fanpcap_ring::pool::PoolShape;
use fanpcap_ring::pool::program::{ProgramWriter, SHORT};
use fanpcap_steer::ebpf::{Apart, Delivery};

/// The capture that is compiled into a group's BPF program.
#[derive(Clone, Copy, Debug)]
pub struct Capture {
    /// The shape of the pools.
    pub(crate) shape: PoolShape,
    pub(crate) variant: Variant,
    pub(crate) side: Side,
}

/// How much work the code of a capture does itself. The first variant does the most. Every verifier
/// accepts the last variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Runs members' filters, and copies short received frames by single loads.
    Full,
    /// Runs members' filters, but copies all frames by the kernel's helper. Some verifiers refuse
    /// single loads: before Linux 6.16, for a process without `CAP_PERFMON`, the verifier also
    /// follows the impossible branch of a comparison. On this branch, it loses the bounds of the
    /// length, so that single loads seem to exceed the record.
    Copied,
    /// Copies all frames by the helper, and leaves the filters to the readers. In the other
    /// variants, a BPF function runs a filter by a tail call, from which not every machine can
    /// return: arm64 can since Linux 6.0.
    Plain,
}

/// Which packets a BPF program captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Packets that the device receives, at XDP.
    Received,
    /// Packets that the host sends, at the device's traffic control.
    Sent,
}

impl Capture {
    /// Whether the code of the capture runs the slots' filters.
    fn has_filters(self) -> bool {
        self.variant != Variant::Plain
    }

    /// The code that writes into the members' pools.
    fn writer(self) -> ProgramWriter {
        ProgramWriter {
            shape: self.shape,
            pools: POOLS,
        }
    }

    /// The bounds of a packet's bytes in a record, from the shortest record's on. Each is one less
    /// than a power of two, for a mask. A block that has no room for a record of the bound is left,
    /// so a bound that is much longer than a record wastes memory.
    fn bounds(self) -> Vec<i32> {
        let half = self.shape.block_len() as i32 / 2 - 1;
        let sent = (self.side == Side::Sent).then_some(half.min(SENT_LONGEST));
        [SHORT, RECEIVED_LONGEST].into_iter().chain(sent).collect()
    }

    /// Puts the packet's lane into r0. The lane is the CPU's. A group has a lane for each possible
    /// CPU, so the mask changes nothing.
    fn lane(self, asm: &mut Assembler) {
        asm.call(GET_SMP_PROCESSOR_ID, ());
        asm.alu(Op::And, R0, self.shape.lanes() as i32 - 1);
    }

    /// Increments one of the group's counters, in the row of the packet's lane. Stores the lane on
    /// the stack at `key`.
    fn count(self, asm: &mut Assembler, key: i16, counter: i16) {
        self.lane(asm);
        asm.store(Width::Word, R10, key, R0);
        look_up(asm, LEDGER, key);
        asm.unless(R0.is(0), |asm| {
            asm.set(R1, 1);
            asm.atomic_add(R0, counter, R1);
        });
    }
}

/// The indices of the maps in [`Capture::maps`].
const LEDGER: usize = 0;
const SETTINGS: usize = 1;
const STAMPS: usize = 2;
const ROWS: usize = 3;
const POOLS: usize = 4;
const BELLS: usize = 5;
const FIRST_BELL: usize = 6;
const FILTERS: usize = 7;

/// Offset on the main function's stack: a map key.
const KEY: i16 = -40;

impl Delivery for Capture {
    fn maps(&self) -> Vec<MapSpec> {
        let mut maps = vec![
            layout::ledger_rows(self.shape),
            layout::settings_row(),
            layout::stamp(),
            layout::rows(self.shape),
            layout::members(POOLS_MAP),
            layout::members(BELLS_MAP),
            layout::first_bell(),
        ];
        if self.has_filters() {
            maps.push(layout::filters(match self.side {
                Side::Received => FILTERS_MAP,
                Side::Sent => SENT_FILTERS_MAP,
            }));
        }
        maps
    }

    fn is_of_sent(&self) -> bool {
        self.side == Side::Sent
    }

    /// Puts the root's stamp into r9. If the device has no root, r9 stays 0, and this BPF program
    /// returns a verdict for the kernel. With a stamp in r9, it returns its result for the root.
    fn arrive(&self, asm: &mut Assembler) {
        if self.side == Side::Sent {
            return sent::arrive(asm);
        }
        let done = asm.label();
        asm.value(R1, SETTINGS, settings::HAS_ROOT.into());
        asm.load(Width::Word, R1, R1, 0);
        asm.jump_if(R1.is(0), done);
        asm.store(Width::Word, R10, KEY, 0);
        look_up(asm, STAMPS, KEY);
        asm.jump_if(R0.is(0), done);
        asm.load(Width::Double, R9, R0, 0);
        asm.bind(done);
    }

    fn stamp(&self, asm: &mut Assembler) {
        asm.set(R0, R9);
        asm.when(R0.is(0), |asm| asm.call(KTIME_GET_NS, ()));
    }

    fn deliver(&self, asm: &mut Assembler, apart: Apart, done: Option<Label>) {
        let [missed, unwanted, dropped] = asm.labels();
        Delivering {
            capture: *self,
            filter: self.has_filters().then_some(apart.filter),
            take_block: apart.room,
            done,
            missed,
            unwanted,
            dropped,
        }
        .emit(asm);
    }

    fn filter(&self, asm: &mut Assembler) {
        deliver::emit_filter(asm);
    }

    fn make_room(&self, asm: &mut Assembler) {
        self.writer().take_block(asm);
    }

    fn again(&self, asm: &mut Assembler) {
        self.count(asm, KEY, ledger::AGAIN);
    }

    fn drop(&self, asm: &mut Assembler) {
        self.count(asm, KEY, ledger::NOWHERE);
    }

    fn miss(&self, asm: &mut Assembler) {
        self.count(asm, KEY, ledger::NO_MEMBER);
    }

    fn leave(&self, asm: &mut Assembler) {
        if self.side == Side::Sent {
            return sent::leave(asm);
        }
        asm.when(R9.is(0), |asm| {
            asm.unless(R8.is(0), |asm| asm.exit_with(XDP_PASS));
            asm.value(R1, SETTINGS, settings::VERDICT.into());
            asm.load(Width::Word, R0, R1, 0);
            asm.exit();
        });
        asm.exit_with(R8);
    }
}

/// Looks up a value in the map with this index. The key is on the stack at `key`. Puts the value's
/// address into r0, or 0 if the map has no such value.
fn look_up(asm: &mut Assembler, index: usize, key: i16) {
    asm.call(MAP_LOOKUP, (map(index), stack(key)));
}
