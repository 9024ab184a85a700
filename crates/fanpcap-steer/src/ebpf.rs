//! eBPF for the kernel: from the tree to a fan-out group's BPF program, a member's filter, or a BPF
//! program at XDP.
//!
//! Every verifier since Linux 5.8 (at XDP 5.18) takes the code from a process with `CAP_BPF` and no
//! more. So jumps go forward, the stack is read only where it was written, and no pointer moves by
//! a number that is not constant. The verifier's work grows with the code and not with the number
//! of paths through it: what it knows of a packet is erased where paths meet (`recall.rs`). The
//! code is bounded: [`INSTRUCTIONS_MAX`], [`CONDITIONS_MAX`].
//!
//! The walk, short loads, the quotation of an ICMP error, the hash of a flow, the fragment table
//! and each pcap filter are functions. Type information (BTF) lets the kernel verify each of them
//! once and not with every call. Where the kernel does not take that, they are loaded without.

mod stack;
mod assembler;
mod view;
mod target;
mod effect;
mod maps;
mod needs;
mod emitter;
mod require;
mod key;
mod local;
mod predicate;
mod classic;
mod flow;
mod property;
mod quote;
mod read;
mod recall;
mod sets;
mod walk;
mod inside;
mod plain;
mod steer;
#[cfg(test)]
mod tests;

pub use assembler::{CONDITIONS_MAX, INSTRUCTIONS_MAX, STEPS_MAX};
pub use maps::{COUNTERS_MAP, FRAGMENTS_MAP, LATE_MAP, SETS_MAP, TURNS_MAP};

use crate::ir::Tree;
use crate::parts::{Parts, Unfit};
use emitter::{Role, emit};
use fanpcap_bpf::{Classic, Object};
use std::fmt;
use target::{Socket, Target, Xdp};

/// Why a program can't run in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EbpfError {
    /// It wants what a group of the kernel's can't do.
    Unfit(Unfit),
    /// It comes to more code than the kernel surely takes.
    TooLong {
        /// Of what there is too much.
        what: &'static str,
        /// How much there is, as far as it was counted.
        count: usize,
        /// How much there may be.
        limit: usize,
    },
    /// Functions or predicates lie too deep in each other.
    TooDeep,
    /// A classic program is none, or asks for what only the kernel's own translation can give it.
    Filter {
        /// The expression, or whose filter it is.
        text: String,
        /// Which instruction, from 0.
        instruction: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl fmt::Display for EbpfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfit(unfit) => f.write_str(&unfit.what),
            Self::TooLong { what, count, limit } => write!(
                f,
                "the program comes to {count} {what} or more, and the kernel surely takes {limit}: write less"
            ),
            Self::TooDeep => f.write_str(
                "functions or predicates lie too deep in each other: write fewer brackets",
            ),
            Self::Filter {
                text,
                instruction,
                why,
            } => {
                write!(f, "instruction {instruction} of {text}: {why}")
            }
        }
    }
}

impl std::error::Error for EbpfError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unfit(unfit) => Some(unfit),
            Self::TooLong { .. } | Self::TooDeep | Self::Filter { .. } => None,
        }
    }
}

impl From<Unfit> for EbpfError {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}

/// The BPF program of a fan-out group (`PACKET_FANOUT_EBPF`), from the steering part. It returns
/// the hash, of which the kernel takes the remainder by the number of members.
///
/// # Errors
/// See [`EbpfError`].
pub fn fanout(parts: &Parts) -> Result<Object, EbpfError> {
    fanout_of(parts.steering())
}

/// The filter of each member (`SO_ATTACH_BPF`), from the filtering part; `None` where there is
/// none. It keeps nothing of a packet that the steering program drops. Of others it keeps as much
/// as `user` says, the classic filter of a handle on Ethernet (`SOCK_RAW`), or all.
///
/// # Errors
/// See [`EbpfError`].
pub fn filter(parts: &Parts, user: Option<&[Classic]>) -> Result<Option<Object>, EbpfError> {
    let filtering = parts.filtering();
    filtering.map(|tree| filter_of(tree, user)).transpose()
}

/// The BPF program at XDP, from the whole tree. It returns the hash, or [`u32::MAX`] for what the
/// steering program drops.
///
/// # Errors
/// See [`EbpfError`].
pub fn xdp(tree: &Tree) -> Result<Object, EbpfError> {
    object(tree, &Xdp, Role::Steer { drop: u32::MAX })
}

fn fanout_of(tree: &Tree) -> Result<Object, EbpfError> {
    object(tree, &Socket { fanout: true }, Role::Steer { drop: 0 })
}

fn filter_of(tree: &Tree, user: Option<&[Classic]>) -> Result<Object, EbpfError> {
    object(tree, &Socket { fanout: false }, Role::Keep { user })
}

/// Plain packets have a way in of their own, and a body where nothing asks for headers, unless
/// there is no room for it.
fn object(tree: &Tree, target: &dyn Target, role: Role<'_>) -> Result<Object, EbpfError> {
    match emit(tree, target, role, true) {
        Err(EbpfError::TooLong { .. }) => emit(tree, target, role, false),
        object => object,
    }
}
