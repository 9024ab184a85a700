//! How large a tree is, and a walk over all of its parts.

use crate::ir::{Function, Predicate};

/// The size of a function or predicate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Functions and predicates.
    pub(crate) nodes: usize,
    /// How deep they lie in each other.
    pub(crate) depth: usize,
    /// How deep `inner` lies in `inner`.
    pub(crate) inner: usize,
}

impl Measure {
    /// Of one that has these parts.
    fn around(parts: impl IntoIterator<Item = Measure>) -> Measure {
        let none = Measure::default();
        let sum = parts.into_iter().fold(none, |sum, part| Measure {
            nodes: sum.nodes + part.nodes,
            depth: sum.depth.max(part.depth),
            inner: sum.inner.max(part.inner),
        });
        Measure {
            nodes: sum.nodes + 1,
            depth: sum.depth + 1,
            inner: sum.inner,
        }
    }

    /// Of a function.
    pub(crate) fn function(function: &Function) -> Measure {
        match function {
            Function::Sequence(parts) | Function::First(parts) => {
                Measure::around(parts.iter().map(Measure::function))
            }
            Function::If(question, then, otherwise) => Measure::around([
                Measure::predicate(question),
                Measure::function(then),
                Measure::function(otherwise),
            ]),
            Function::Inverse(part) => Measure::around([Measure::function(part)]),
            Function::Inner(part) => {
                let whole = Measure::around([Measure::function(part)]);
                Measure {
                    inner: whole.inner + 1,
                    ..whole
                }
            }
            Function::Pass
            | Function::Drop
            | Function::Steer(_)
            | Function::Broadcast
            | Function::Classify(_)
            | Function::Host(_)
            | Function::Mark(_)
            | Function::Count(..)
            | Function::SetState(_)
            | Function::Sample { .. } => Measure::around([]),
        }
    }

    /// Of a predicate.
    pub(crate) fn predicate(predicate: &Predicate) -> Measure {
        match predicate {
            Predicate::Not(part) => Measure::around([Measure::predicate(part)]),
            Predicate::And(a, b) | Predicate::Or(a, b) | Predicate::Xor(a, b) => {
                Measure::around([Measure::predicate(a), Measure::predicate(b)])
            }
            Predicate::Constant(_)
            | Predicate::Compare(..)
            | Predicate::Member(..)
            | Predicate::Has(_)
            | Predicate::Address(..)
            | Predicate::AddressIn { .. }
            | Predicate::Port(..)
            | Predicate::Pcap(_)
            | Predicate::Share { .. }
            | Predicate::Rtp
            | Predicate::Rtcp => Measure::around([]),
        }
    }
}

/// A part of a tree that has no parts of its own.
pub(crate) enum Leaf<'a> {
    /// A function.
    Function(&'a mut Function),
    /// A predicate.
    Predicate(&'a mut Predicate),
}

/// Calls `on` for each leaf of a function, from left to right.
pub(crate) fn leaves(function: &mut Function, on: &mut dyn FnMut(Leaf<'_>)) {
    match function {
        Function::Sequence(parts) | Function::First(parts) => {
            parts.iter_mut().for_each(|part| leaves(part, on));
        }
        Function::If(question, then, otherwise) => {
            questions(question, on);
            leaves(then, on);
            leaves(otherwise, on);
        }
        Function::Inverse(part) | Function::Inner(part) => leaves(part, on),
        Function::Pass
        | Function::Drop
        | Function::Steer(_)
        | Function::Broadcast
        | Function::Classify(_)
        | Function::Host(_)
        | Function::Mark(_)
        | Function::Count(..)
        | Function::SetState(_)
        | Function::Sample { .. } => on(Leaf::Function(function)),
    }
}

fn questions(predicate: &mut Predicate, on: &mut dyn FnMut(Leaf<'_>)) {
    match predicate {
        Predicate::Not(part) => questions(part, on),
        Predicate::And(a, b) | Predicate::Or(a, b) | Predicate::Xor(a, b) => {
            questions(a, on);
            questions(b, on);
        }
        Predicate::Constant(_)
        | Predicate::Compare(..)
        | Predicate::Member(..)
        | Predicate::Has(_)
        | Predicate::Address(..)
        | Predicate::AddressIn { .. }
        | Predicate::Port(..)
        | Predicate::Pcap(_)
        | Predicate::Share { .. }
        | Predicate::Rtp
        | Predicate::Rtcp => on(Leaf::Predicate(predicate)),
    }
}
