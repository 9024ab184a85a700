//! Walks over a program's tree.

use fanpcap_steer::ir::{Function, NodeMut, Predicate};

/// Calls `on` for each function, children first.
pub(crate) fn each(function: &mut Function, on: &mut dyn FnMut(&mut Function)) {
    function.walk_mut(&mut |node| {
        if let NodeMut::Function(function) = node {
            on(function);
        }
    });
}

/// Calls `on` for each predicate, children first.
pub(crate) fn each_predicate(function: &mut Function, on: &mut dyn FnMut(&mut Predicate)) {
    function.walk_mut(&mut |node| {
        if let NodeMut::Predicate(predicate) = node {
            on(predicate);
        }
    });
}

/// Number of functions and predicates.
pub(crate) fn nodes(function: &Function) -> usize {
    let mut count = 0;
    function.walk(&mut |_| count += 1);
    count
}
