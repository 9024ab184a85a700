//! A bug that is put in on purpose, to see whether it is found.

use fanpcap_bpf::{Instruction, Object};
use fanpcap_steer::ir::Tree;

use super::side::Hook;

/// Where the bug is.
#[derive(Clone, Copy)]
pub(crate) enum Seed<'a> {
    /// Nowhere.
    None,
    /// One instruction of the code at one hook is another one.
    Code(Hook, usize, Instruction),
    /// The evaluator runs another program.
    Program(&'a dyn Fn(&mut Tree)),
    /// The evaluator is told of another packet.
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
