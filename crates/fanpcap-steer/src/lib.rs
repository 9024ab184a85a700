//! The steering language. A steering program selects the packets that a group wants, and the member
//! that gets each of these packets. This crate turns the source of a steering program into a tree,
//! and compiles the tree for the kernel or evaluates it in user space. The crate does no I/O.
//!
//! ```
//! let tree = fanpcap_steer::tree("main = tcp >-> steer_flow", &|_| Err("no libpcap".to_owned()))?;
//! # Ok::<(), fanpcap_steer::Error>(())
//! ```
#![forbid(unsafe_code)]

mod limits;
mod ast;
mod error;
pub mod hash;
pub mod ir;
mod measure;
pub mod modes;
pub mod native;
pub mod nearest;
pub mod parts;
mod options;
pub mod ebpf;
mod compiled;
pub mod table;
mod lexer;
mod parser;
mod check;
mod source;
mod overridden;

pub use check::{Definition, PcapCompiler};
pub use compiled::{Compiled, ForEngine};
pub use error::{Error, quote};
pub use limits::{
    CALLS_MAX, DEPTH_MAX, FILTER_LENGTH_MAX, FILTERS_MAX, INNER_MAX, LIST_MAX, NODES_MAX,
    PARAMETERS_MAX, SAMPLERS_MAX, SOURCE_MAX, WORK_MAX,
};
pub use options::{Balance, GroupOptions};
pub use overridden::{Overridden, overridden};
pub use source::{definitions, is_of_mode, tree};
