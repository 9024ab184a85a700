//! Compiles a tree to eBPF: to the BPF program of a fan-out group, to a member's filter, or to a
//! BPF program at XDP.
//!
//! The verifiers of all kernels since Linux 5.8 (5.18 for XDP) accept the code from a process with
//! only `CAP_BPF`. So all jumps go forward, except in the loop over members at XDP. The code reads
//! the stack only where it has written, and adds no variable to a pointer. The verifier's work
//! grows with the code, not with the number of paths through it: where paths meet, the code erases
//! the verifier's knowledge of the packet (`recall.rs`). [`INSTRUCTIONS_MAX`] and
//! [`CONDITIONS_MAX`] bound the size of the code.
//!
//! The following code is in separate BPF functions: the walk, untyped payload, checksums, short
//! loads, the quotation of an ICMP error, the hash of a flow, the fragment table and each pcap
//! filter. With type information (BTF) the kernel verifies each function once instead of at every
//! call. If the kernel refuses the type information, the loader leaves it out.

mod stack;
mod view;
mod target;
mod effect;
mod maps;
mod needs;
mod delivery;
mod keyed;
mod choices;
mod emitter;
mod frame;
mod alternatives;
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
mod untyped;
mod inside;
mod plain;
mod place;
mod choose;
mod steer;
mod deliver;
mod by_key;
#[cfg(test)]
mod tests;

pub(crate) use delivery::Nowhere;
pub use delivery::{Apart, Delivery, IS_COPY};
pub use keyed::{KEYED_IPV4, KEYED_IPV6, Keyed};
pub use maps::{COUNTERS_MAP, FLOWS_MAP, FRAGMENTS_MAP, LATE_MAP, SETS_MAP, TABLE_MAP, TURNS_MAP};

use crate::ir::{Function, Tree};
use crate::options::GroupOptions;
use crate::parts::{Parts, Unfit, outcomes};
use emitter::{Plain, Role, emit};
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::{Classic, Object};
use std::fmt;
use target::Target;

/// The reason why the kernel can't run a steering program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EbpfError {
    /// A kernel group can't do what the steering program asks for.
    Unfit(Unfit),
    /// The code is larger than every supported kernel accepts.
    TooLong {
        /// What exceeds its limit.
        what: &'static str,
        /// The number that was counted until the compiler gave up; the BPF program may have more.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// Functions or predicates are nested too deep.
    TooDeep,
    /// A classic BPF program is invalid, or reads data that only the kernel's own translation of
    /// classic BPF can read.
    Filter {
        /// The expression, or the owner of the filter.
        text: String,
        /// Index of the instruction.
        instruction: usize,
        /// The error.
        why: &'static str,
    },
}

impl fmt::Display for EbpfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfit(unfit) => f.write_str(&unfit.what),
            Self::TooLong { what, count, limit } => write!(
                f,
                "the program has at least {count} {what}, and every supported kernel accepts {limit}: write a shorter program"
            ),
            Self::TooDeep => f.write_str(
                "functions or predicates are nested too deep: use fewer levels of parentheses",
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

impl From<AssemblerError> for EbpfError {
    fn from(error: AssemblerError) -> Self {
        match error {
            AssemblerError::TooLong { what, count, limit } => Self::TooLong { what, count, limit },
            AssemblerError::TooFar => Self::TooDeep,
        }
    }
}

/// The BPF program of a fan-out group (`PACKET_FANOUT_EBPF`), from the steering part. It returns a
/// slot from the group's table (`fanpcap_buckets::layout`). If the steering program decides by a
/// hash, the slot is the one that owns the hash's bucket. If the steering program decides by a
/// member's number, the slot is the one with this number as its rank.
///
/// # Errors
/// See [`EbpfError`].
pub fn fanout(parts: &Parts) -> Result<Object, EbpfError> {
    fanout_with(parts, GroupOptions::default())
}

/// As [`fanout`], for a group with options. In a sticky group a flow stays with its last member
/// even when the flow's bucket moves. The BPF program remembers a limited number of flows, and
/// forgets the least recently seen. In a balanced group the BPF program counts the packets of each
/// bucket.
///
/// # Errors
/// See [`EbpfError`].
pub fn fanout_with(parts: &Parts, options: GroupOptions) -> Result<Object, EbpfError> {
    by_table(parts.steering(), options)
}

/// As [`fanout`], but the BPF program has no table and returns the hash or the member's number. It
/// serves to measure the table's cost.
///
/// # Errors
/// See [`EbpfError`].
pub fn fanout_without_table(parts: &Parts) -> Result<Object, EbpfError> {
    fanout_of(parts.steering())
}

/// The filter of each member (`SO_ATTACH_BPF`), from the filtering part; `None` if there is no
/// filtering part. The filter rejects every packet that the steering program drops. `user` is the
/// classic filter of a handle on Ethernet (`SOCK_RAW`). Of each packet that the steering program
/// does not drop, the filter keeps as many bytes as `user` returns, or all bytes without `user`.
///
/// # Errors
/// See [`EbpfError`].
pub fn filter(parts: &Parts, user: Option<&[Classic]>) -> Result<Option<Object>, EbpfError> {
    let filtering = parts.filtering();
    filtering.map(|tree| filter_of(tree, user)).transpose()
}

/// The BPF program at XDP, from the whole tree. For each packet it makes the tree's decision, looks
/// up the slots for this decision in the group's table, and delivers the packet to these slots.
///
/// If a steering function gives a packet to one member in a kernel group, the same function selects
/// the same member here. So an Ethernet broadcast, a packet between two local addresses, or a
/// packet of GTP's control plane goes to one member, which is selected by both addresses. A packet
/// goes to several members only by [`Function::Broadcast`] or one of the `Double` variants of
/// [`crate::ir::Steer`], or if no steering function runs for it.
///
/// If `delivery` is for packets that the host sends, the BPF program is for the device's traffic
/// control instead (`BPF_PROG_TYPE_SCHED_CLS`).
///
/// # Errors
/// See [`EbpfError`].
pub fn xdp(
    tree: &Tree,
    options: GroupOptions,
    delivery: &dyn Delivery,
) -> Result<Object, EbpfError> {
    let by = delivery;
    let target: Target = if by.is_of_sent() {
        Target::Sent
    } else {
        Target::Xdp
    };
    let deliver = |calls| object(tree, target, Role::Deliver { by, options, calls });
    let ends = outcomes(&tree.main);
    if ends.copy || ends.broadcast {
        return deliver(true);
    }
    match deliver(false) {
        Err(EbpfError::TooDeep) => deliver(true),
        object => object,
    }
}

/// The filter of a handle at XDP: a separate BPF program, which returns how many of the frame's
/// bytes to keep. 0 rejects the packet.
///
/// `filter` is a filter for a live handle on Ethernet. It expects the first VLAN tag beside the
/// frame, where the kernel's receive path puts it. The number that the BPF program returns includes
/// the tag's bytes.
/// # Errors
/// See [`EbpfError`]. If this function refuses a filter, the reader of the ring can still run it.
pub fn xdp_filter(filter: &[Classic]) -> Result<Object, EbpfError> {
    filter_apart(filter, Target::Xdp)
}

/// The filter of a handle, as [`xdp_filter`], for packets that the host sends
/// (`BPF_PROG_TYPE_SCHED_CLS`). The BPF program reads a packet as a packet socket's filter reads
/// it: the packet is outgoing, and a tag that the kernel keeps beside the frame is metadata. The
/// number that the BPF program returns includes the bytes of this tag.
/// # Errors
/// As [`xdp_filter`].
pub fn sent_filter(filter: &[Classic]) -> Result<Object, EbpfError> {
    filter_apart(filter, Target::Sent)
}

/// A handle's filter as a BPF program of its own, for all packets.
fn filter_apart(filter: &[Classic], target: Target) -> Result<Object, EbpfError> {
    let all = Tree {
        main: Function::Pass,
        sets: Vec::new(),
        filters: Vec::new(),
    };
    object(&all, target, Role::Keep { user: Some(filter) })
}

/// As [`xdp`], but without delivery and table, so that the cost of the decision can be measured.
/// The BPF program returns the hash, or [`u32::MAX`] for a packet that the steering program drops.
///
/// # Errors
/// See [`EbpfError`].
pub fn xdp_decision(tree: &Tree) -> Result<Object, EbpfError> {
    object(tree, Target::Xdp, Role::Steer { drop: u32::MAX })
}

/// A BPF program at XDP that uses the hash of a tree as its key. Functions of the tree that do not
/// decide by a hash have no effect.
///
/// # Errors
/// See [`EbpfError`].
pub fn xdp_by_hash(tree: &Tree, by: &dyn Keyed) -> Result<Object, EbpfError> {
    let role = Role::Keyed { by, has_tree: true };
    object(tree, Target::Xdp, role)
}

/// A BPF program at XDP that makes a key from a packet's headers.
///
/// # Errors
/// See [`EbpfError`].
pub fn xdp_by_headers(by: &dyn Keyed) -> Result<Object, EbpfError> {
    let all = Tree {
        main: Function::Pass,
        sets: Vec::new(),
        filters: Vec::new(),
    };
    let role = Role::Keyed {
        by,
        has_tree: false,
    };
    object(&all, Target::Xdp, role)
}

fn fanout_of(tree: &Tree) -> Result<Object, EbpfError> {
    object(tree, Target::Fanout, Role::Steer { drop: 0 })
}

fn by_table(tree: &Tree, options: GroupOptions) -> Result<Object, EbpfError> {
    object(tree, Target::Fanout, Role::Place { options })
}

fn filter_of(tree: &Tree, user: Option<&[Classic]>) -> Result<Object, EbpfError> {
    object(tree, Target::Filter, Role::Keep { user })
}

/// Compiles a tree. Of the kinds of code for plain packets ([`Plain`]), uses the fastest one with
/// which the BPF program stays within the limits.
fn object(tree: &Tree, target: Target, role: Role<'_>) -> Result<Object, EbpfError> {
    let mut object = emit(tree, target, role, Plain::Bodies);
    for plain in [Plain::Views, Plain::Walked] {
        if matches!(object, Err(EbpfError::TooLong { .. })) {
            object = emit(tree, target, role, plain);
        }
    }
    object
}
