//! The interface of engines to groups: [`Engine`], [`TakenDevice`], [`OnDevice`], [`MemberIo`].
//! Also the parts that engines and groups share: the descriptor store, and the directories of their
//! state.
//!
//! A device is taken once, for all groups on it: [`Engine::take`]. A group then begins there
//! ([`TakenDevice::begin`]), or is opened from what its members hand out ([`Engine::open_group`]).
//! Each member opens rings of its own: [`OnDevice::open`].
//!
//! The kernel frees all of this with the last process that has it open. If a process dies during a
//! call that changes something, another process can repeat the call.
#![forbid(unsafe_code)]

pub mod faults;
pub mod fd_store;
pub mod root;
mod ledger;
mod refusal;
mod member_io;
mod on_device;
mod engine;

pub use engine::{Begun, Engine, NewGroup, TakenDevice, WatchedCounters, Watcher};
pub use ledger::Ledger;
pub use member_io::{Ask, MemberIo};
pub use on_device::{Counts, Loader, Next, OnDevice};
pub use refusal::Refusal;
