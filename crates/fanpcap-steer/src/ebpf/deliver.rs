//! Delivers packets: the main function of a BPF program that delivers calls the decision as a BPF
//! function, looks up the slots, and delivers to each.
//!
//! So its own frame on the stack is small, and the delivery has room for the filters of members.

use super::delivery::Delivery;
use super::emitter::Emitter;
use super::needs::Needs;
use super::stack::{OF_DELIVERY, OF_GROUP};
use crate::ir::{Function, Node, Steer};
use crate::parts::{may_drop, outcomes};
use fanpcap_bpf::assembler::{If, Label, Op, R0, R1, R2, R3, R6, R8};

/// Position of the kind of a decision, above the hash or number.
const KIND_SHIFT: i32 = 46;
/// The kind of a decision to drop the packet.
const DROP: i32 = 4;

impl<'a> Emitter<'a> {
    /// Emits a BPF program that delivers.
    pub(super) fn deliver(
        &mut self,
        by: &'a dyn Delivery,
        flows: Option<u32>,
        needs: &Needs,
        plain: bool,
    ) {
        if outcomes(&self.tree.main).copy {
            self.unfit("a copy to every member");
        }
        self.maps.begin_with(by.maps());
        let (decide, deliver) = (self.asm.label(), self.asm.label());
        self.begin(by, decide);
        self.spots = OF_DELIVERY;
        self.deliver_decided(by, deliver, flows);
        self.spots = OF_GROUP;
        self.asm.bind(deliver);
        self.asm.note("deliver to a slot");
        by.deliver(&mut self.asm);
        self.asm.bind(decide);
        self.asm.note("decide");
        self.main(needs, plain);
    }

    /// Puts the decision into r8.
    fn begin(&mut self, by: &dyn Delivery, decide: Label) {
        self.asm.set(R6, R1);
        self.asm.note("arrive");
        by.arrive(&mut self.asm);
        self.asm.note("decision");
        self.asm.set(R1, R6);
        self.asm.set(R2, 0);
        self.asm.set(R3, 0);
        self.asm.call_function(decide);
        self.asm.set(R8, R0);
    }

    fn deliver_decided(&mut self, by: &dyn Delivery, deliver: Label, flows: Option<u32>) {
        let (dropped, found, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        let drops = may_drop(&self.tree.main);
        if drops {
            self.asm.set(R1, R8);
            self.asm.alu(Op::Right, R1, KIND_SHIFT);
            self.asm.jump_if(If::Equal, R1, DROP, dropped);
        }
        self.numbers = has_numbers(&self.tree.main);
        self.place(None, flows, Some(found));
        self.asm.bind(found);
        self.asm.note("delivery");
        self.asm.set(R8, R0);
        by.stamp(&mut self.asm);
        self.asm.set(R1, R6);
        self.asm.set(R2, R8);
        self.asm.set(R3, R0);
        self.asm.call_function(deliver);
        if drops {
            self.asm.jump(done);
            self.asm.bind(dropped);
            self.asm.note("dropped");
            by.drop(&mut self.asm);
        }
        self.asm.bind(done);
        self.asm.note("leave");
        self.asm.set(R8, 0);
        by.leave(&mut self.asm);
    }

    /// Returns the decision to drop where the packet was dropped. Expects the decision in r0.
    pub(super) fn decided_to_drop(&mut self, drop: Label) {
        self.asm.exit();
        self.asm.bind(drop);
        self.asm.number(R0, (DROP as u64) << KIND_SHIFT);
    }
}

/// Whether some packets go by a member's number.
fn has_numbers(main: &Function) -> bool {
    let mut found = false;
    main.walk(&mut |node| {
        let number = |steer: &Steer| matches!(steer, Steer::RoundRobin | Steer::Cpu | Steer::To(_));
        found |= matches!(node, Node::Function(Function::Steer(steer)) if number(steer));
    });
    found
}
