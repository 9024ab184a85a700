//! Determines what a steering program reads, so that the code prepares nothing else.

use super::EbpfError;
use crate::ir::{Function, Header, Predicate, Property, Steer};

/// The values that the code must prepare before the body runs the steering program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// The walk of the frame.
    pub(super) frame: bool,
    /// The walk of the carried packet.
    pub(super) inside: bool,
    /// Fields of the packet's IP header or the packet's ports, if the tree reads them for another
    /// purpose than the flow.
    pub(super) headers: bool,
    /// The packet's state, because a predicate reads it.
    pub(super) state: bool,
}

/// Maximum depth of a tree. The compiler recurses into the tree, so a deeper tree could overflow
/// the compiler's stack.
const DEPTH_MAX: usize = 400;

impl Needs {
    pub(super) fn of(main: &Function) -> Result<Self, EbpfError> {
        let mut needs = Self::default();
        needs.function(main, 0)?;
        Ok(needs)
    }

    fn function(&mut self, function: &Function, depth: usize) -> Result<(), EbpfError> {
        let depth = deeper(depth)?;
        if let Function::Steer(steer) = function {
            self.steer(steer);
        }
        if matches!(function, Function::Inner(_)) {
            (self.frame, self.inside) = (true, true);
        }
        if let Some(question) = function.question() {
            self.predicate(question, depth)?;
        }
        let mut children = function.children();
        children.try_for_each(|child| self.function(child, depth))
    }

    fn steer(&mut self, steer: &Steer) {
        self.inside |= *steer == Steer::Gtp;
        self.frame |= !matches!(
            steer,
            Steer::RoundRobin
                | Steer::Random
                | Steer::Cpu
                | Steer::To(_)
                | Steer::Field(_)
                | Steer::Fields(..)
        );
    }

    fn predicate(&mut self, predicate: &Predicate, depth: usize) -> Result<(), EbpfError> {
        let depth = deeper(depth)?;
        match predicate {
            Predicate::Compare(property, ..) | Predicate::Member(property, _) => {
                self.state |= *property == Property::State;
                self.frame |=
                    !matches!(property, Property::State | Property::Mark | Property::Queue);
                self.headers |= of_ip(*property);
            }
            Predicate::Has(header) => {
                self.inside |= *header == Header::Inner;
                self.headers |= matches!(header, Header::IpBroadcast | Header::IpMulticast);
                self.frame = true;
            }
            Predicate::Constant(_)
            | Predicate::Pcap(_)
            | Predicate::Not(_)
            | Predicate::And(..)
            | Predicate::Or(..)
            | Predicate::Xor(..) => {}
            Predicate::Address(..)
            | Predicate::AddressIn { .. }
            | Predicate::Port(..)
            | Predicate::Share { .. } => (self.frame, self.headers) = (true, true),
            Predicate::Rtp | Predicate::Rtcp => self.frame = true,
        }
        let mut children = predicate.children();
        children.try_for_each(|child| self.predicate(child, depth))
    }
}

/// Whether the property is in the IP header.
fn of_ip(property: Property) -> bool {
    matches!(
        property,
        Property::Tos | Property::IpLength | Property::IpId | Property::IpFragment | Property::Ttl
    )
}

fn deeper(depth: usize) -> Result<usize, EbpfError> {
    if depth >= DEPTH_MAX {
        return Err(EbpfError::TooDeep);
    }
    Ok(depth + 1)
}
