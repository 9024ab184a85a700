//! Finds the functions that can change outcome or state and then drop the packet. If such a
//! function drops the packet, the code must restore outcome and state.

use crate::ir::{Function, Key, Steer};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effect {
    /// The function may change outcome or state.
    pub(super) sets: bool,
    drops: bool,
    /// The function may change outcome or state and then drop the packet.
    pub(super) dirty: bool,
}

impl Effect {
    pub(super) fn of(function: &Function) -> Self {
        let none = Self::default();
        match function {
            Function::Steer(Steer::Key(Key(0)) | Steer::To(_) | Steer::RoundRobin)
            | Function::SetState(_)
            | Function::Broadcast
            | Function::Classify(_)
            | Function::Host(false)
            | Function::Mark(_) => Self { sets: true, ..none },
            Function::Host(true) => Self {
                sets: true,
                drops: true,
                dirty: true,
            },
            Function::Steer(_) => Self {
                sets: true,
                drops: true,
                ..none
            },
            Function::Drop | Function::Sample { .. } => Self {
                drops: true,
                ..none
            },
            Function::Sequence(functions) => functions.iter().fold(none, |sum, function| {
                let next = Self::of(function);
                Self {
                    dirty: sum.dirty || next.dirty || (sum.sets && next.drops),
                    ..sum.or(next)
                }
            }),
            Function::If(_, then, otherwise) => Self::of(then).or(Self::of(otherwise)),
            // If an alternative drops the packet, its changes are undone, except for the last
            // alternative.
            Function::First(functions) => {
                let all = functions.iter().map(Self::of).fold(none, Self::or);
                let dirty = functions.last().is_some_and(|last| Self::of(last).dirty);
                Self {
                    dirty,
                    drops: true,
                    ..all
                }
            }
            Function::Inverse(function) => {
                let inside = Self::of(function);
                Self {
                    drops: true,
                    dirty: inside.sets,
                    ..inside
                }
            }
            Function::Inner(function) => Self::of(function),
            Function::Pass | Function::Count(..) => none,
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            sets: self.sets || other.sets,
            drops: self.drops || other.drops,
            dirty: self.dirty || other.dirty,
        }
    }
}
