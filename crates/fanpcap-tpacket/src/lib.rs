//! The engine on AF_PACKET: reads the ring of a packet socket with the behaviour of the system's libpcap,
//! at less cost. What it does otherwise, and why, is in docs/decisions.
#![forbid(unsafe_code)]

mod accept;
pub mod filter;
mod reader;
mod rest;
mod ring;
mod wait;

pub use accept::Direction;
pub use reader::{Call, End, Options, Packet, Reader};
pub use wait::ReadError;
