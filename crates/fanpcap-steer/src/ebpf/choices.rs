//! The kinds of decisions in a BPF program that delivers packets, and the kinds that a given tree
//! can make.
//!
//! r8 holds the decision. The lower half is a hash, a member's number, or the first of two buckets.
//! The upper half holds the marks of fragments, the second bucket, and the kind of the decision.
//! The class, the decision about the host, and the mark are on the stack, because steering
//! functions do not change them.

use crate::ir::{Function, Node, Predicate, Property, Steer};
use crate::parts::{may_drop, outcomes};

/// The kinds of decisions that a tree can make, and the parts of a decision that are on the stack.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choices {
    /// Some packets go to a member by its number.
    pub(super) numbers: bool,
    pub(super) drops: bool,
    /// Some packets go to all members of a class.
    pub(super) copies: bool,
    /// Some packets go to all members of all classes except 63.
    pub(super) broadcasts: bool,
    /// Some packets go to two members.
    pub(super) doubles: bool,
    /// The tree gives packets to classes of members.
    pub(super) classes: bool,
    /// The tree decides whether the host gets a packet.
    pub(super) host: bool,
    /// The tree both sets and reads marks.
    pub(super) marks: bool,
}

/// Shift of a decision's kind in r8, above the second bucket.
pub(super) const KIND_SHIFT: i32 = 46;
pub(super) const KIND_MASK: i32 = 7;
/// Kind: to all members of a class.
pub(super) const COPY: i32 = 1;
/// Kind: to all members of all classes except 63.
pub(super) const BROADCAST: i32 = 2;
/// Kind: to the owners of two buckets.
pub(super) const DOUBLE: i32 = 3;
/// Kind: to no member.
pub(super) const DROP: i32 = 4;
/// Shift of the second bucket, above the marks of fragments.
pub(super) const SECOND_SHIFT: i32 = 34;
/// Shift of the class, in a decision that the decision function returns.
pub(super) const CLASS_SHIFT: i32 = 49;
pub(super) const CLASS_MASK: i32 = 63;
/// Shift of the decision about the host, in a decision that the decision function returns. The
/// value is 0 if the tree did not decide, 1 if the host gets the packet too, and 2 if only the host
/// gets the packet.
pub(super) const HOST_SHIFT: i32 = CLASS_SHIFT + HOST_BIT;
pub(super) const HOST_MASK: i32 = 3;

/// Shift of the decision about the host on the stack, above the class. The flag [`MARKED`] says
/// that the tree has set a mark.
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

    /// Whether the stack holds a class, a decision about the host, or a mark.
    pub(super) fn on_stack(self) -> bool {
        self.classes || self.host || self.marks
    }

    pub(super) fn has_kinds(self) -> bool {
        self.drops || self.copies || self.broadcasts || self.doubles
    }
}
