//! What every engine is to the groups whose members it serves: [`Engine`], [`TakenDevice`],
//! [`OnDevice`] and [`MemberIo`]; and what engines and membership share, the store of descriptors
//! and the directories of their state.
//!
//! An engine has two lifetimes. A device is taken once, for all groups on it: [`Engine::take`]. A
//! group then begins there, [`TakenDevice::begin`], or is opened by what its members hand out,
//! [`Engine::open_group`]. Each member has its own part: [`OnDevice::open`].
//!
//! The kernel frees all of it with the last process that has it open. Every call that changes
//! something can be repeated by another process after a death in the middle of it.
#![forbid(unsafe_code)]

pub mod faults;
pub mod fd_store;
pub mod root;
mod ledger;
mod refusal;
mod member_io;
mod on_device;
mod engine;

pub use engine::{Begun, Engine, NewGroup, TakenDevice, WatchedCounters};
pub use ledger::Ledger;
pub use member_io::{Ask, MemberIo};
pub use on_device::{Counts, Loader, Next, OnDevice};
pub use refusal::{PartError, Refusal};
