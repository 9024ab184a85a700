//! One look at a network namespace, for those who watch groups: devices, packet sockets, members'
//! counters, what came to a group, and the processes behind all of them.
#![forbid(unsafe_code)]

mod host_use;
mod tables;
mod snapshot;
mod offered;
mod holders;
mod source;
#[cfg(feature = "fixture")]
pub mod fixture;

pub use host_use::HostUse;
pub use offered::Offered;
pub use snapshot::{
    Counts, Device, Group, Process, STALE_SECONDS, Snapshot, Socket, percent, rounded, seconds,
};
pub use source::Source;
pub use tables::GroupKey;
