//! The children of each node of a tree, and functions that visit all nodes.

use super::{Function, Predicate};
use std::slice;

/// A function or a predicate of a tree.
#[derive(Clone, Copy, Debug)]
pub enum Node<'t> {
    /// A function.
    Function(&'t Function),
    /// A predicate.
    Predicate(&'t Predicate),
}

/// A function or a predicate of a tree, mutable.
#[derive(Debug)]
pub enum NodeMut<'t> {
    /// A function.
    Function(&'t mut Function),
    /// A predicate.
    Predicate(&'t mut Predicate),
}

/// Declares the functions that return a node's children and that visit all nodes, by shared or by
/// mutable reference.
macro_rules! children {
    ($children:ident, $walk:ident, $node:ident, $slice:ident, $iter:ident $(, $mut:tt)?) => {
        impl Function {
            /// The function's child functions, from left to right.
            pub fn $children(&$($mut)? self) -> impl Iterator<Item = &$($mut)? Function> {
                let (some, others): (&$($mut)? [Function], &$($mut)? [Function]) = match self {
                    Self::Sequence(parts) | Self::First(parts) => (parts, &$($mut)? []),
                    Self::If(_, then, otherwise) => (slice::$slice(then), slice::$slice(otherwise)),
                    Self::Inverse(part) | Self::Inner(part) => (slice::$slice(part), &$($mut)? []),
                    Self::Pass
                    | Self::Drop
                    | Self::Steer(_)
                    | Self::Broadcast
                    | Self::Classify(_)
                    | Self::Host(_)
                    | Self::Mark(_)
                    | Self::Count(..)
                    | Self::SetState(_)
                    | Self::Sample { .. } => (&$($mut)? [], &$($mut)? []),
                };
                some.$iter().chain(others)
            }

            /// Calls `on` for each node: first for the children of a node, from left to right, then
            /// for the node itself.
            pub fn $walk(&$($mut)? self, on: &mut dyn FnMut($node<'_>)) {
                if let Self::If(question, ..) = self {
                    question.$walk(on);
                }
                self.$children().for_each(|child| child.$walk(on));
                on($node::Function(self));
            }
        }

        impl Predicate {
            /// The predicate's children, from left to right.
            pub fn $children(&$($mut)? self) -> impl Iterator<Item = &$($mut)? Predicate> {
                let children = match self {
                    Self::Not(part) => [Some(&$($mut)? **part), None],
                    Self::And(one, other) | Self::Or(one, other) | Self::Xor(one, other) => {
                        [Some(&$($mut)? **one), Some(&$($mut)? **other)]
                    }
                    Self::Constant(_)
                    | Self::Compare(..)
                    | Self::Member(..)
                    | Self::Has(_)
                    | Self::Address(..)
                    | Self::AddressIn { .. }
                    | Self::Port(..)
                    | Self::Pcap(_)
                    | Self::Share { .. }
                    | Self::Rtp
                    | Self::Rtcp => [None, None],
                };
                children.into_iter().flatten()
            }

            fn $walk(&$($mut)? self, on: &mut dyn FnMut($node<'_>)) {
                self.$children().for_each(|child| child.$walk(on));
                on($node::Predicate(self));
            }
        }
    };
}

children!(children, walk, Node, from_ref, iter);
children!(children_mut, walk_mut, NodeMut, from_mut, iter_mut, mut);

impl Function {
    /// The predicate of an [`Function::If`].
    pub fn question(&self) -> Option<&Predicate> {
        if let Self::If(question, ..) = self {
            Some(question)
        } else {
            None
        }
    }
}
