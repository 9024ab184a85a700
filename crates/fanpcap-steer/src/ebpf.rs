//! eBPF for the kernel: from the tree to a fan-out group's program, a member's filter, or a program at XDP.
//!
//! The code is made to be taken by every verifier since Linux 5.8 (at XDP 5.18), for who has `CAP_BPF` and no more: jumps go forward, the stack is read where it
//! was written, no pointer moves by a number that is not constant. What the verifier goes through grows with the code and not with the
//! ways through it, as what the ways find is forgotten where they meet (`view.rs`), and the code is bounded: [`INSTRUCTIONS_MAX`], [`CONDITIONS_MAX`].
//! The walk, what loads few bytes, what an ICMP error quotes, the hash of a flow, the fragment table and each pcap filter are functions, of which the kernel is
//! told so much (BTF) that it verifies each once and not with every call; where it does not take that, they are loaded without.

mod stack;
mod assembler;
mod effect;
mod listing;
mod maps;
mod needs;
mod room;
mod object;
mod emitter;
mod view;
mod key;
mod local;
mod predicate;
mod target;
mod classic;
mod flow;
mod property;
mod quote;
mod read;
mod recall;
mod sets;
mod walk;
mod inside;
#[cfg(test)]
mod tests;
mod plain;
mod steer;

pub use assembler::{CONDITIONS_MAX, INSTRUCTIONS_MAX, STEPS_MAX};
pub use object::{LoadError, Loaded, Object};
pub use room::NoRoom;

use crate::ir::Program;
use crate::slice::{self, Unfit};
use emitter::{Role, emit};
use fanpcap_bpf::{Classic, ProgramKind};
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

/// The program of a fan-out group (`PACKET_FANOUT_EBPF`): returns the hash, of which the kernel takes the remainder by the number of members.
///
/// # Errors
/// See [`EbpfError`].
pub fn fanout(program: &Program) -> Result<Object, EbpfError> {
    fanout_of(&slice::steering(program)?)
}

/// The filter of each member (`SO_ATTACH_BPF`): keeps nothing of a packet that the program drops, and of others as much as `user`
/// says, the classic filter of a handle on Ethernet (`SOCK_RAW`), or all. None where the program neither drops nor counts.
///
/// # Errors
/// See [`EbpfError`].
pub fn filter(program: &Program, user: Option<&[Classic]>) -> Result<Option<Object>, EbpfError> {
    let verdict = slice::verdict(program)?;
    verdict.map(|verdict| filter_of(&verdict, user)).transpose()
}

/// The program at XDP: returns the hash, or [`u32::MAX`] for what it drops.
///
/// # Errors
/// See [`EbpfError`].
pub fn xdp(program: &Program) -> Result<Object, EbpfError> {
    compile(program, &Xdp, Role::Steer { drop: u32::MAX })
}

fn fanout_of(program: &Program) -> Result<Object, EbpfError> {
    compile(program, &Socket { fanout: true }, Role::Steer { drop: 0 })
}

fn filter_of(program: &Program, user: Option<&[Classic]>) -> Result<Object, EbpfError> {
    compile(program, &Socket { fanout: false }, Role::Keep { user })
}

/// Plain packets have a way in of their own, and a body where nothing asks for headers, unless there is no room for it.
fn compile(program: &Program, target: &dyn Target, role: Role<'_>) -> Result<Object, EbpfError> {
    let code = match emit(program, target, role, true) {
        Err(EbpfError::TooLong { .. }) => emit(program, target, role, false),
        code => code,
    };
    let (code, maps) = code?;
    let kind = if target.is_socket_buffer() {
        ProgramKind::SocketFilter
    } else {
        ProgramKind::Xdp
    };
    Ok(Object::new(kind, code, maps, program))
}
