//! The interface between engines and groups: [`Engine`], [`TakenDevice`], [`OnDevice`],
//! [`MemberIo`]; for engines with a poller [`Polled`] and [`PolledIo`]. The crate also has the
//! parts that engines and groups share: the descriptor store, and the directories of their state.
//!
//! An engine takes a device once, for all groups on it ([`Engine::take`]). The first member then
//! begins a group there ([`TakenDevice::begin`]). Later members open the group from the descriptors
//! that the group's members hand out ([`Engine::open_group`]). Each member opens rings of its own
//! ([`OnDevice::open`]).
//!
//! When the last process that has these objects open ends, the kernel frees all of them. If a
//! process dies during a call that changes something, another process can repeat the call.
#![forbid(unsafe_code)]

pub mod faults;
pub mod fd_store;
pub mod root;
mod ledger;
mod refusal;
mod member_io;
mod polled;
mod on_device;
mod engine;

pub use engine::{Begun, Engine, NewGroup, TakenDevice, WatchedCounters, Watcher};
pub use ledger::Ledger;
pub use member_io::{Ask, MemberIo};
pub use on_device::{Counts, Loader, Next, OnDevice};
pub use polled::{EnterGroup, EnterRequest, NO_POLLER, Polled, PolledIo, SILENT_POLLER, Whole};
pub use refusal::Refusal;
