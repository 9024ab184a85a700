//! The code of a BPF program that delivers packets. For each packet, the code runs the decision,
//! looks up the slots, and delivers the packet to each slot.
//!
//! A tail call runs a member's filter. The kernel allows a tail call only if the stack frames of
//! the callers are together smaller than 256 bytes. So a decision that needs much stack is a
//! separate BPF function, whose stack frame is gone at the tail call. Any other decision is in the
//! main function, and so is the delivery to a single member, because a call costs 8 ns on a
//! processor that guards returns against speculation.

use super::choices::{
    BROADCAST, CLASS_MASK, CLASS_SHIFT, COPY, DOUBLE, DROP, HOST_MASK, HOST_SHIFT, KIND_MASK,
    KIND_SHIFT, SECOND_SHIFT,
};
use super::delivery::{Apart, Delivery, IS_COPY};
use super::emitter::{Emitter, Plain};
use super::needs::Needs;
use super::stack::{DECISION, KEPT, OF_DELIVERY, OF_GROUP, PART, RANKS, STAMP};
use crate::options::GroupOptions;
use fanpcap_bpf::assembler::*;
use fanpcap_buckets::layout::{self, EVERYBODY, SLOTS};

/// The number of rows of one class in the table, and the base of the rows of classes 1 to 63: a
/// class's first row is `PARTS_ROW` + class * `PART_ROWS`. The rows of class 0 are at the table's
/// start.
const PART_ROWS: i32 = 576;
const PARTS_ROW: i32 = 11_712;
/// The first row of the ranks of all members except those of class 63.
const EVERYBODY_ROW: i32 = PARTS_ROW + PART_ROWS * 64;
const _: () = assert!(PART_ROWS as usize * 8 == layout::PART);
const _: () = assert!(EVERYBODY_ROW as usize * 8 == layout::part(EVERYBODY));
const _: () = assert!((PARTS_ROW + PART_ROWS) as usize * 8 == layout::part(1));

const RANKS_MAX: i32 = 256;
const _: () = assert!(RANKS_MAX as usize == SLOTS);
/// Number of ranks to which one call of the BPF function at [`Ways::to_some`] delivers.
const SOME: i32 = 16;
/// Shifts of two fields in the argument of the call, above the number of ranks: the first rank, and
/// the class's first row in the table.
const FIRST_SHIFT: i32 = 16;
const PART_SHIFT: i32 = 32;

/// Labels of the code for each kind of decision.
#[derive(Clone, Copy)]
struct Ways {
    deliver: Label,
    apart: Apart,
    to_some: Label,
    to_two: Label,
    to_everybody: Label,
    to_class: Label,
    nobody: Label,
    dropped: Label,
    done: Label,
}

impl<'a> Emitter<'a> {
    pub(super) fn deliver(
        &mut self,
        by: &'a dyn Delivery,
        options: GroupOptions,
        needs: &Needs,
        plain: Plain,
    ) {
        self.maps.begin_with(by.maps());
        let decide = self.asm.label();
        let ways = Ways {
            deliver: self.asm.label(),
            apart: Apart {
                filter: self.asm.label(),
                room: self.asm.label(),
            },
            to_some: self.asm.label(),
            to_two: self.asm.label(),
            to_everybody: self.asm.label(),
            to_class: self.asm.label(),
            nobody: self.asm.label(),
            dropped: self.asm.label(),
            done: self.asm.label(),
        };
        self.begin(by, decide, needs, plain);
        self.spots = OF_DELIVERY;
        self.deliver_decided(by, options, ways);
        self.bind_and(ways.to_some, |this| {
            this.asm.note("to some members of a class");
            this.send_to_some(by, ways);
        });
        self.spots = OF_GROUP;
        self.bind_and(ways.deliver, |this| {
            this.asm.note("deliver to a slot");
            by.deliver(&mut this.asm, ways.apart, None);
        });
        self.bind_and(ways.apart.filter, |this| {
            this.asm.note("a member's filter");
            by.filter(&mut this.asm);
        });
        self.bind_and(ways.apart.room, |this| {
            this.asm.note("make room");
            by.make_room(&mut this.asm);
        });
        if self.decided.is_none() {
            self.asm.bind(decide);
            self.asm.note("decide");
            self.asm.set(R6, R1);
            self.main(needs, plain);
        }
    }

    /// Emits [`Delivery::arrive`] and the decision. Leaves the decision in r8.
    fn begin(&mut self, by: &dyn Delivery, decide: Label, needs: &Needs, plain: Plain) {
        self.asm.set(R6, R1);
        self.asm.set(R9, 0);
        self.asm.note("arrive");
        by.arrive(&mut self.asm);
        self.asm.note("decision");
        if let Some(decided) = self.decided {
            self.asm.store(Width::Double, R10, KEPT, R9);
            self.main(needs, plain);
            self.asm.bind(decided);
            self.asm.load(Width::Double, R9, R10, KEPT);
        } else {
            self.asm.call_function(decide, (R6, 0, 0));
            self.asm.set(R8, R0);
        }
        if self.choices.host {
            self.asm.store(Width::Double, R10, DECISION, R8);
        }
        if self.choices.classes {
            self.part_of_class();
        }
    }

    /// Stores the table's first row for the class in the decision.
    fn part_of_class(&mut self) {
        self.asm.set(R1, (R8 >> CLASS_SHIFT) & CLASS_MASK);
        self.asm
            .unless(R1.is(0), |asm| asm.set(R1, (R1 * PART_ROWS) + PARTS_ROW));
        self.asm.store(Width::Double, R10, PART, R1);
    }

    fn deliver_decided(&mut self, by: &dyn Delivery, options: GroupOptions, ways: Ways) {
        self.by_kind(ways);
        self.send_to_one(by, options, ways);
        self.bind_and(ways.to_two, |this| {
            this.send_to_two(by, ways);
        });
        self.bind_and(ways.to_everybody, |this| {
            this.asm.store(Width::Double, R10, PART, EVERYBODY_ROW);
        });
        self.bind_and(ways.to_class, |this| {
            this.send_to_all(by, ways);
        });
        self.bind_and(ways.nobody, |this| {
            this.asm.note("no member");
            by.miss(&mut this.asm);
            this.asm.jump(ways.done);
        });
        self.bind_and(ways.dropped, |this| {
            this.asm.note("dropped");
            by.drop(&mut this.asm);
        });
        self.asm.bind(ways.done);
        self.asm.note("leave");
        self.asm.set(R8, 0);
        if self.choices.host {
            self.asm.load(Width::Double, R8, R10, DECISION);
            self.asm.set(R8, (R8 >> HOST_SHIFT) & HOST_MASK);
        }
        by.leave(&mut self.asm);
    }

    /// Falls through if the decision is for one member, else jumps to the code for the kind of the
    /// decision.
    fn by_kind(&mut self, ways: Ways) {
        let choices = self.choices;
        if !choices.has_kinds() {
            return;
        }
        // Without classes, all members are in the default class, so a broadcast is a copy to that
        // class.
        let everybody = if choices.classes {
            ways.to_everybody
        } else {
            ways.to_class
        };
        self.asm.set(R1, (R8 >> KIND_SHIFT) & KIND_MASK);
        for (can, kind, way) in [
            (choices.drops, DROP, ways.dropped),
            (choices.copies, COPY, ways.to_class),
            (choices.doubles, DOUBLE, ways.to_two),
            (choices.broadcasts, BROADCAST, everybody),
        ] {
            if can {
                self.asm.jump_if(R1.is(kind), way);
            }
        }
    }

    fn send_to_one(&mut self, by: &dyn Delivery, options: GroupOptions, ways: Ways) {
        let found = self.asm.label();
        if self.choices.classes {
            self.ranks(ways.nobody);
        }
        self.numbers = self.choices.numbers;
        self.place(None, options.flows, Some(found));
        self.asm.bind(found);
        self.asm.note("to one member");
        self.asm.set(R8, R0);
        by.stamp(&mut self.asm);
        self.asm.set(R3, R0);
        if self.delivers_in_place() {
            let delivered = self.asm.label();
            self.asm.set(R1, R6);
            self.asm.set(R2, R8);
            by.deliver(&mut self.asm, ways.apart, Some(delivered));
            self.asm.bind(delivered);
            self.asm.load(Width::Double, R9, R10, KEPT);
        } else {
            self.call_deliver(R8, ways);
        }
        self.asm.jump(ways.done);
    }

    /// Whether the code of the delivery is in the main function. It is if no packet goes to several
    /// members, and if the tree does not decide about the host.
    fn delivers_in_place(&self) -> bool {
        let choices = self.choices;
        let several = choices.copies || choices.broadcasts || choices.doubles;
        self.decided.is_some() && !several && !choices.host
    }

    /// Calls the delivery function. The stamp must be in r3.
    fn call_deliver(&mut self, slot: Register, ways: Ways) {
        self.asm.call_function(ways.deliver, (R6, slot));
    }

    /// Stores the stamp, because several deliveries need it.
    fn stamp(&mut self, by: &dyn Delivery) {
        by.stamp(&mut self.asm);
        self.asm.store(Width::Double, R10, STAMP, R0);
    }

    fn send_to_two(&mut self, by: &dyn Delivery, ways: Ways) {
        self.asm.note("to two members");
        if self.choices.classes {
            self.ranks(ways.nobody);
        }
        self.asm.set(R7, R8);
        self.owner(ways.nobody);
        self.asm.store(Width::Double, R10, RANKS, R0);
        self.asm.set(R8, R7 >> SECOND_SHIFT);
        self.owner(ways.nobody);
        self.asm.set(R8, R0);
        self.stamp(by);
        self.asm.set(R3, R0);
        self.asm.load(Width::Double, R7, R10, RANKS);
        self.asm.unless(R7.is(R8), |asm| {
            asm.alu(Op::Or, R7, IS_COPY);
            asm.alu(Op::Or, R8, IS_COPY);
        });
        self.call_deliver(R7, ways);
        self.asm.jump_if(R7.is(R8), ways.done);
        by.again(&mut self.asm);
        self.asm.load(Width::Double, R3, R10, STAMP);
        self.call_deliver(R8, ways);
        self.asm.jump(ways.done);
    }

    /// Delivers the packet to each rank of a class. Each call delivers to [`SOME`] ranks, because
    /// the verifier would give up on a single loop over all ranks.
    fn send_to_all(&mut self, by: &dyn Delivery, ways: Ways) {
        self.asm.note("to all members of a class");
        self.ranks(ways.nobody);
        // Members write the number of ranks to the table, so the number may be too large.
        self.asm
            .when(R0.above(RANKS_MAX), |asm| asm.set(R0, RANKS_MAX));
        self.asm.set(R7, R0);
        if self.choices.classes {
            self.asm.load(Width::Double, R1, R10, PART);
            self.asm.alu(Op::Left, R1, PART_SHIFT);
            self.asm.alu(Op::Or, R7, R1);
        }
        self.asm.store(Width::Double, R10, RANKS, R0);
        self.stamp(by);
        for first in (0..RANKS_MAX).step_by(SOME as usize) {
            self.asm.set(R1, R6);
            self.asm.number(R2, (first as u64) << FIRST_SHIFT);
            self.asm.alu(Op::Or, R2, R7);
            self.asm.load(Width::Double, R3, R10, STAMP);
            self.asm.call_function(ways.to_some, ());
            self.asm.load(Width::Double, R1, R10, RANKS);
            let rest = first + SOME;
            self.asm.jump_if(R1.at_most(rest), ways.done);
        }
        self.asm.jump(ways.done);
    }

    /// The BPF function that delivers to some ranks. r1 is the context. r2 has the number of ranks,
    /// the first rank, and the class's first row in the table. r3 is the stamp.
    fn send_to_some(&mut self, by: &dyn Delivery, ways: Ways) {
        let [next, done] = self.asm.labels();
        self.asm.set(R6, R1);
        self.asm.store(Width::Double, R10, STAMP, R3);
        self.asm.set(R9, R2);
        self.asm.alu(Op::Right, R2, PART_SHIFT);
        self.asm.store(Width::Double, R10, PART, R2);
        self.asm.set(R7, 0);
        self.asm.bind(next);
        self.asm
            .set(R8, ((R9 >> FIRST_SHIFT) & (RANKS_MAX - 1)) + R7);
        self.asm.set(R1, R9 & ((1 << FIRST_SHIFT) - 1));
        self.asm.jump_if(R8.at_least(R1), done);
        self.unless(R8.is(0), |this| by.again(&mut this.asm));
        self.rank_slot(done);
        // Sets `IS_COPY` if there are at least 2 ranks, because then other members get the packet,
        // too. There are at most 256 ranks.
        self.asm.set(
            R1,
            ((R9 & ((1 << FIRST_SHIFT) - 1)) + (IS_COPY - 2)) & IS_COPY,
        );
        self.asm.alu(Op::Or, R0, R1);
        self.asm.load(Width::Double, R3, R10, STAMP);
        self.call_deliver(R0, ways);
        self.asm.alu(Op::Add, R7, 1);
        self.asm.repeat_if(R7.below(SOME), next);
        self.asm.bind(done);
        self.asm.exit_with(0);
    }
}
