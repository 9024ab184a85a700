//! Reads a ring with the behaviour of the system's libpcap at less cost. Turns frames in memory
//! into the packets and return values of pcap_dispatch(3PCAP). docs/decisions lists the differences
//! and their reasons.
//!
//! The reader accesses rings by their layout ([`Ring`]), and engines through a [`Port`].
#![deny(unsafe_code)]

pub mod borrowed;
pub mod filter;
mod port;
#[cfg(test)]
mod quiet;
mod group_tasks;
mod rest;
mod call;
mod accept;
mod publish;
mod control;
mod lane;
mod inherited;
mod wait;
mod single;
mod merge;
mod reader;
mod away;

pub use accept::{Direction, Options};
pub use call::{Call, End, Packet};
pub use control::Control;
pub use fanpcap_ring::Ring;
pub use group_tasks::{GroupTasks, PublishedPosition, Takeover, TaskResult};
pub use port::{DISAPPEARED, LinkState, Port, PortStatistics, ReadError};
pub use publish::{Publish, PublishedCounters};
pub use reader::{Input, Reader};
