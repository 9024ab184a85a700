//! Reads a ring with the behaviour of the system's libpcap, at less cost: from frames in memory to
//! the packets and returns of pcap_dispatch(3PCAP). Docs/decisions say what differs, and why.
//!
//! The reader knows rings by their layout ([`Ring`]) and their engines by a [`Port`].
#![deny(unsafe_code)]

pub mod filter;
mod port;
mod rest;
mod ring;
mod call;
mod accept;
mod publish;
mod lane;
mod control;
mod wait;
mod single;
mod merge;
mod reader;

pub use accept::{Direction, Options};
pub use call::{Call, End, Packet};
pub use port::{Link, Port, ReadError, Statistics};
pub use publish::{Publish, PublishedCounters};
pub use reader::{Input, Reader};
pub use ring::Ring;
