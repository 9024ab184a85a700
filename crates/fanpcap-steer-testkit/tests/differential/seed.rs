//! Deliberate bugs, which the comparison must find.

use fanpcap_bpf::{Instruction, Object};
use fanpcap_steer::ir::Tree;

use super::side::Hook;

/// The place of a deliberate bug.
#[derive(Clone, Copy)]
pub(crate) enum Seed<'a> {
    /// No bug.
    None,
    /// This instruction replaces an instruction in the code of a hook.
    Code(Hook, usize, Instruction),
    /// The evaluator runs a changed program.
    Program(&'a dyn Fn(&mut Tree)),
    /// The evaluator gets a changed packet.
    Packet(&'a dyn Fn(&mut Vec<u8>)),
}

impl Seed<'_> {
    pub(crate) fn object(&self, hook: Hook, mut object: Object) -> Object {
        match *self {
            Self::Code(at, place, instruction) if at == hook => {
                object.instructions[place] = instruction;
            }
            Self::None | Self::Code(..) | Self::Program(_) | Self::Packet(_) => {}
        }
        object
    }

    pub(crate) fn program(&self, program: &mut Tree) {
        if let Self::Program(change) = self {
            change(program);
        }
    }
}
