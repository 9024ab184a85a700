//! The engine on AF_PACKET: reads the ring of a packet socket with the behaviour of the system's libpcap,
//! at less cost. What it does otherwise, and why, is in docs/decisions.
#![deny(unsafe_code)]

pub mod filter;
mod publish;
mod rest;
mod ring;
mod call;
mod accept;
mod lane;
mod reader;
mod wait;
mod merge;

pub use accept::Direction;
pub use call::{Call, End, Options, Packet};
pub use publish::{Kept, Tell};
pub use reader::Reader;
pub use wait::ReadError;
