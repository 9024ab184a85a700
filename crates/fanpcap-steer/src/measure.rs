//! Measures the size and the depth of trees.

use std::iter;

use crate::ir::{Function, Predicate};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Number of functions and predicates.
    pub(crate) nodes: usize,
    pub(crate) depth: usize,
    /// Nesting depth of `inner`.
    pub(crate) inner: usize,
}

impl Measure {
    /// The measure of a node whose children have the measures `parts`.
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

    pub(crate) fn function(function: &Function) -> Measure {
        // Does not chain the `Option` with the children, because the loop that LLVM makes of such a
        // chain reads uninitialized memory. That read has no effect, but valgrind reports it.
        let question = function.question().map(Measure::predicate);
        let parts = function.children().map(Measure::function);
        let parts = iter::once(question.unwrap_or_default()).chain(parts);
        let whole = Measure::around(parts);
        Measure {
            inner: whole.inner + usize::from(matches!(function, Function::Inner(_))),
            ..whole
        }
    }

    pub(crate) fn predicate(predicate: &Predicate) -> Measure {
        Measure::around(predicate.children().map(Measure::predicate))
    }
}
