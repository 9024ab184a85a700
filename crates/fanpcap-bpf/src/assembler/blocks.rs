//! Blocks of code that run on a condition.

use super::{Assembler, Condition, Label};

/// Emits code in blocks.
pub trait Blocks: Sized {
    /// The assembler to which the blocks are emitted.
    fn assembler(&mut self) -> &mut Assembler;

    /// Emits code that runs if the condition does not hold.
    fn unless(&mut self, condition: Condition, emit: impl FnOnce(&mut Self)) {
        self.before(|this, behind| {
            this.assembler().jump_if(condition, behind);
            emit(this);
        });
    }

    /// Emits code that runs if the condition holds.
    fn when(&mut self, condition: Condition, emit: impl FnOnce(&mut Self)) {
        self.before(|this, behind| {
            let holds = this.assembler().label();
            this.assembler().branch(condition, holds, behind);
            this.bind_and(holds, emit);
        });
    }

    /// Emits code that can jump to its own end: `emit` gets a label, which is bound after the code.
    fn before(&mut self, emit: impl FnOnce(&mut Self, Label)) {
        let behind = self.assembler().label();
        emit(self, behind);
        self.assembler().bind(behind);
    }

    /// Binds a label, and emits the code there if it is reachable.
    fn bind_and(&mut self, label: Label, emit: impl FnOnce(&mut Self)) {
        self.assembler().bind(label);
        if self.assembler().is_live() {
            emit(self);
        }
    }
}

impl Blocks for Assembler {
    fn assembler(&mut self) -> &mut Assembler {
        self
    }
}
