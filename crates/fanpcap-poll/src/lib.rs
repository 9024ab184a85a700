//! What a poller and its members share: pools in shared memory, messages, and where the poller
//! listens.
//!
//! A poller takes packets from a device in user space and writes them into the pools of members
//! that it does not trust. The poller depends on this crate, and so does the library that members
//! load. Neither side needs a capability for anything in here.
#![forbid(unsafe_code)]

mod pool_file;
pub mod message;
mod asking;
pub mod place;

pub use asking::{Asking, is_closed};
pub use pool_file::{Holders, LANES_MAX, PoolFile, PoolKind, PoolSize};
