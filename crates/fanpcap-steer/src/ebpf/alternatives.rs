//! Emits alternatives. If a function drops the packet, the code restores outcome and state and runs
//! the next function.

use super::EbpfError;
use super::effect::Effect;
use super::emitter::Emitter;
use super::stack::{CHOICE, MARK, SAVED, STATE};
use crate::ir::Function;
use fanpcap_bpf::assembler::*;

/// The stack slots in which outcome and state are saved.
#[derive(Clone, Copy)]
struct Saved {
    /// Slot of the outcome. The state is 8 bytes below it.
    slot: i16,
    mark: Option<i16>,
}

impl<'a> Emitter<'a> {
    pub(super) fn first(&mut self, functions: &'a [Function], drop: Label) {
        let done = self.asm.label();
        let Some((last, others)) = functions.split_last() else {
            return self.asm.jump(drop);
        };
        for function in others {
            let next = self.asm.label();
            self.attempt(function, next, done);
        }
        self.function(last, drop);
        self.asm.bind(done);
    }

    /// Emits an alternative. If the alternative passes the packet, the code jumps to `passed`. If
    /// the alternative drops the packet, the code falls through with the previous outcome and
    /// state; `dropped` is bound at its end.
    fn attempt(&mut self, function: &'a Function, dropped: Label, passed: Label) {
        let effect = Effect::of(function);
        let saved = effect.dirty.then(|| self.save());
        self.function(function, dropped);
        self.asm.jump(passed);
        self.asm.bind(dropped);
        if let Some(saved) = saved {
            self.put_back(saved);
            self.give_back(saved);
        }
    }

    /// Emits an inverse. The decision about the host stays when a function drops the packet. So if
    /// an inverse drops the packet, its code restores the decision about the host as it was before
    /// the inverse.
    pub(super) fn inverse(&mut self, function: &'a Function, drop: Label) {
        let dropped = self.asm.label();
        if !self.choices.host || !Effect::of(function).sets {
            return self.attempt(function, dropped, drop);
        }
        let passed = self.asm.label();
        let saved = self.save();
        self.function(function, dropped);
        self.asm.jump(passed);
        self.bind_and(passed, |this| {
            this.put_back(saved);
            this.asm.jump(drop);
        });
        self.bind_and(dropped, |this| {
            this.put_back(saved);
        });
        self.give_back(saved);
    }

    fn save(&mut self) -> Saved {
        let slot = self.take_slot();
        self.asm.store(Width::Double, R10, slot, R8);
        self.load_state(R1);
        if self.keeps_state || self.choices.on_stack() {
            self.asm.store(Width::Double, R10, slot - 8, R1);
        }
        let mark = self.choices.marks.then(|| self.take_slot());
        if let Some(slot) = mark {
            self.asm.load(Width::Word, R1, R10, MARK);
            self.asm.store(Width::Double, R10, slot, R1);
        }
        Saved { slot, mark }
    }

    /// Loads into `target` the state and the part of the outcome that is on the stack, if the BPF
    /// program has them. Clobbers r2.
    fn load_state(&mut self, target: Register) {
        if self.keeps_state {
            self.asm.load(Width::Word, target, R10, STATE);
        }
        if self.choices.on_stack() {
            self.asm.load(Width::Word, R2, R10, CHOICE);
            self.asm.alu(Op::Left, R2, 32);
            let op = if self.keeps_state { Op::Or } else { Op::Move };
            self.asm.alu(op, target, R2);
        }
    }

    fn put_back(&mut self, saved: Saved) {
        let Saved { slot, mark } = saved;
        self.asm.load(Width::Double, R8, R10, slot);
        if self.keeps_state || self.choices.on_stack() {
            self.asm.load(Width::Double, R1, R10, slot - 8);
        }
        if self.keeps_state {
            self.asm.store(Width::Word, R10, STATE, R1);
        }
        if self.choices.on_stack() {
            self.asm.alu(Op::Right, R1, 32);
            self.asm.store(Width::Word, R10, CHOICE, R1);
        }
        if let Some(slot) = mark {
            self.asm.load(Width::Double, R1, R10, slot);
            self.asm.store(Width::Word, R10, MARK, R1);
        }
    }

    fn give_back(&mut self, saved: Saved) {
        self.give_slot_back();
        if saved.mark.is_some() {
            self.give_slot_back();
        }
    }

    /// Reserves 8 bytes of stack and the 8 bytes below them, until [`Emitter::give_slot_back`].
    pub(super) fn take_slot(&mut self) -> i16 {
        if self.saved >= self.saved_max {
            self.fail(EbpfError::TooDeep);
        }
        self.saved += 1;
        SAVED - 16 * (self.saved - 1)
    }

    pub(super) fn give_slot_back(&mut self) {
        self.saved -= 1;
    }
}
