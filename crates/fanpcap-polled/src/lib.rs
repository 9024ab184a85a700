//! Pollers as an engine: a handle becomes a member by connecting to the poller of its device. The
//! poller writes the member's packets into a pool, and the reader reads them there. The member
//! needs no capability. It is a member as long as any process has the connection open, such as a
//! child that it has forked.
//!
//! PF_RING is an engine of the same kind ([`pfring`]): its kernel module shares the packets of a
//! group, in the place of a poller (decision 71).
#![forbid(unsafe_code)]

mod port;
mod tasks;
mod enter;
mod pair;
mod engine;
pub mod pfring;

pub use engine::{OfPoller, refusal};
pub use enter::{EnterError, PolledMember, enter, enter_or_keep};
pub use port::ended;
