//! What has to be put back where a function drops.

use crate::ir::{Function, Key, Steer};

/// What running a function may do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effect {
    /// It may change outcome or state.
    pub(super) sets: bool,
    /// It may drop.
    drops: bool,
    /// It may do both, in this order.
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
            // What an alternative that drops has set is put back, but for the last one's.
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
