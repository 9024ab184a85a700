//! Takes snapshots of a network namespace, for commands that watch groups. A snapshot has the
//! devices, packet sockets, members' counters, the packets that reached a group, and the processes
//! of the sockets.
#![forbid(unsafe_code)]

mod host_use;
mod tables;
mod snapshot;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod offered;
mod holders;
mod gone;
mod pollers;
mod source;

pub use gone::members_wait;
pub use host_use::HostUse;
pub use offered::{NO_TIME, NOT_ALLOWED, Offered, STEERED_NOWHERE};
pub use pollers::{
    LIMIT as POLLER_LIMIT, device_of, is_pollers, poller, shown_name, unreachable, view,
};
pub use snapshot::{
    Counts, Device, Group, Library, OfPoller, Process, STALE_SECONDS, Snapshot, Socket, on,
    on_engine, percent, rounded, seconds,
};
pub use source::Source;
pub use tables::GroupKey;
