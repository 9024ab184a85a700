//! What a BPF program that delivers can decide: the kinds of decisions, and which of them a tree
//! can come to.
//!
//! r8 has the decision: in its lower half a hash or a member's number, or two buckets; above it the
//! marks of fragments and the kind of the decision. The stack has what steering does not change:
//! class, host and mark.

use crate::ir::{Function, Node, Predicate, Property, Steer};
use crate::parts::{may_drop, outcomes};

/// The kinds of decisions that a tree can come to, and what the stack has of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choices {
    /// Some packets go by a member's number.
    pub(super) numbers: bool,
    /// Some are dropped.
    pub(super) drops: bool,
    /// Some go to all members of a class.
    pub(super) copies: bool,
    /// Some go to all members.
    pub(super) broadcasts: bool,
    /// Some go to two members.
    pub(super) doubles: bool,
    /// Members have classes.
    pub(super) classes: bool,
    /// The tree says what the host gets.
    pub(super) host: bool,
    /// The tree marks packets, and reads marks.
    pub(super) marks: bool,
}

/// The kind of a decision, above the second bucket.
pub(super) const KIND_SHIFT: i32 = 46;
pub(super) const KIND_MASK: i32 = 7;
/// To all members of a class.
pub(super) const COPY: i32 = 1;
/// To all members of all classes but 63.
pub(super) const BROADCAST: i32 = 2;
/// To the owners of two buckets.
pub(super) const DOUBLE: i32 = 3;
/// To nobody.
pub(super) const DROP: i32 = 4;
/// The second bucket, above the marks of fragments.
pub(super) const SECOND_SHIFT: i32 = 34;
/// The class, in a decision that is returned.
pub(super) const CLASS_SHIFT: i32 = 49;
pub(super) const CLASS_MASK: i32 = 63;
/// What the host gets: 0 for what was not said, 1 for the packet too, 2 for the packet alone.
pub(super) const HOST_SHIFT: i32 = CLASS_SHIFT + HOST_BIT;
pub(super) const HOST_MASK: i32 = 3;

/// The host's part on the stack, above the class; and the flag of a mark.
pub(super) const HOST_BIT: i32 = 8;
pub(super) const MARKED: i32 = 1 << 16;

impl Choices {
    pub(super) fn of(main: &Function) -> Self {
        let ends = outcomes(main);
        let mut found = Self {
            drops: may_drop(main),
            copies: ends.copy,
            broadcasts: ends.broadcast,
            doubles: ends.double,
            ..Self::default()
        };
        let (mut sets, mut reads) = (false, false);
        main.walk(&mut |node| match node {
            Node::Function(Function::Steer(Steer::RoundRobin | Steer::Cpu | Steer::To(_))) => {
                found.numbers = true;
            }
            Node::Function(Function::Classify(_)) => found.classes = true,
            Node::Function(Function::Host(_)) => found.host = true,
            Node::Function(Function::Mark(_)) => sets = true,
            Node::Predicate(
                Predicate::Compare(Property::Mark, ..) | Predicate::Member(Property::Mark, _),
            ) => reads = true,
            Node::Function(_) | Node::Predicate(_) => {}
        });
        found.marks = sets && reads;
        found
    }

    /// Whether the stack holds a class, the host's part or a mark.
    pub(super) fn on_stack(self) -> bool {
        self.classes || self.host || self.marks
    }

    /// Whether decisions have kinds.
    pub(super) fn has_kinds(self) -> bool {
        self.drops || self.copies || self.broadcasts || self.doubles
    }
}
