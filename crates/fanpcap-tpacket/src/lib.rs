//! The engine on AF_PACKET: reads the ring of a packet socket with the behaviour of the system's libpcap,
//! at less cost. What it does otherwise, and why, is in docs/decisions.
#![deny(unsafe_code)]

mod accept;
mod call;
pub mod filter;
mod lane;
mod merge;
mod publish;
mod reader;
mod rest;
mod ring;
mod wait;

pub use accept::Direction;
pub use call::{Call, End, Options, Packet};
pub use publish::{Kept, Tell};
pub use reader::Reader;
pub use wait::ReadError;
