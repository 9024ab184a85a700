//! The nodes of a tree: what each one holds, and walks over all of them.

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

/// The same, to be changed.
#[derive(Debug)]
pub enum NodeMut<'t> {
    /// A function.
    Function(&'t mut Function),
    /// A predicate.
    Predicate(&'t mut Predicate),
}

impl Function {
    /// The functions that this one holds, from left to right.
    pub fn children(&self) -> impl Iterator<Item = &Function> {
        let (some, others): (&[Function], &[Function]) = match self {
            Self::Sequence(parts) | Self::First(parts) => (parts, &[]),
            Self::If(_, then, otherwise) => (slice::from_ref(then), slice::from_ref(otherwise)),
            Self::Inverse(part) | Self::Inner(part) => (slice::from_ref(part), &[]),
            Self::Pass
            | Self::Drop
            | Self::Steer(_)
            | Self::Broadcast
            | Self::Classify(_)
            | Self::Host(_)
            | Self::Mark(_)
            | Self::Count(..)
            | Self::SetState(_)
            | Self::Sample { .. } => (&[], &[]),
        };
        some.iter().chain(others)
    }

    /// The same, to be changed.
    pub fn children_mut(&mut self) -> impl Iterator<Item = &mut Function> {
        let (some, others): (&mut [Function], &mut [Function]) = match self {
            Self::Sequence(parts) | Self::First(parts) => (parts, &mut []),
            Self::If(_, then, otherwise) => (slice::from_mut(then), slice::from_mut(otherwise)),
            Self::Inverse(part) | Self::Inner(part) => (slice::from_mut(part), &mut []),
            Self::Pass
            | Self::Drop
            | Self::Steer(_)
            | Self::Broadcast
            | Self::Classify(_)
            | Self::Host(_)
            | Self::Mark(_)
            | Self::Count(..)
            | Self::SetState(_)
            | Self::Sample { .. } => (&mut [], &mut []),
        };
        some.iter_mut().chain(others)
    }

    /// The predicate that this function asks, if it is an [`Function::If`].
    pub fn question(&self) -> Option<&Predicate> {
        if let Self::If(question, ..) = self {
            Some(question)
        } else {
            None
        }
    }

    /// Calls `on` for each node: first for those that a node holds, from left to right, then for
    /// the node.
    pub fn walk(&self, on: &mut dyn FnMut(Node<'_>)) {
        if let Some(question) = self.question() {
            question.walk(on);
        }
        self.children().for_each(|child| child.walk(on));
        on(Node::Function(self));
    }

    /// The same, to change the nodes.
    pub fn walk_mut(&mut self, on: &mut dyn FnMut(NodeMut<'_>)) {
        if let Self::If(question, ..) = self {
            question.walk_mut(on);
        }
        self.children_mut().for_each(|child| child.walk_mut(on));
        on(NodeMut::Function(self));
    }
}

impl Predicate {
    /// The predicates that this one holds, from left to right.
    pub fn children(&self) -> impl Iterator<Item = &Predicate> {
        let children = match self {
            Self::Not(part) => [Some(&**part), None],
            Self::And(one, other) | Self::Or(one, other) | Self::Xor(one, other) => {
                [Some(&**one), Some(&**other)]
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

    fn walk(&self, on: &mut dyn FnMut(Node<'_>)) {
        self.children().for_each(|child| child.walk(on));
        on(Node::Predicate(self));
    }

    fn walk_mut(&mut self, on: &mut dyn FnMut(NodeMut<'_>)) {
        match self {
            Self::Not(part) => part.walk_mut(on),
            Self::And(one, other) | Self::Or(one, other) | Self::Xor(one, other) => {
                one.walk_mut(on);
                other.walk_mut(on);
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
            | Self::Rtcp => {}
        }
        on(NodeMut::Predicate(self));
    }
}
