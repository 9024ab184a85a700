//! The steering language: one program says which packets a group wants and which member gets each.
//!
//! ```
//! let program = fanpcap_steer::compile("main = tcp >-> steer_flow", &|_| Err("no libpcap".to_owned()))?;
//! # Ok::<(), fanpcap_steer::Error>(())
//! ```

mod ast;
mod error;
pub mod hash;
pub mod ir;
mod measure;
pub mod modes;
pub mod native;
pub mod nearest;
pub mod slice;
pub mod ebpf;
pub mod table;
mod lexer;
mod compile;
mod parser;
mod check;

pub use check::Definition;
pub use compile::{
    CALLS_MAX, DEPTH_MAX, FILTER_LENGTH_MAX, FILTERS_MAX, INNER_MAX, LIST_MAX, NODES_MAX,
    PARAMETERS_MAX, PcapFilter, SAMPLERS_MAX, SOURCE_MAX, WORK_MAX, compile, definitions,
};
pub use error::Error;
