//! A capture cluster: several nodes behind a mirror port capture each packet once, and prove it.
//!
//! This crate does no I/O and reads no clock. The crate `fanpcap-clusterd` passes messages, times
//! and bytes to this crate, and carries out what this crate's functions return.
#![forbid(unsafe_code)]

mod identity;
mod topology;
mod encoding;
mod part;
mod coordination;
pub mod loss_account;
pub mod record;
pub mod dicap;
pub mod analyzer;
pub mod control;
pub mod reshape;
pub mod coordinator;
pub mod node;

pub use coordination::{
    Announcement, ClusterStatus, DesiredState, LiveNode, NodeEvent, Refusal, Setup, Version, View,
    WriteError, unreadable_topology,
};
pub use encoding::MOST_ENCODED;
pub use identity::{NodeId, Revision};
pub use part::Part;
pub use topology::{
    ANALYZERS, FILTER_CODE, FILTER_TEXT, NODES, NodeEntry, Phase, Topology, TopologyError,
};
