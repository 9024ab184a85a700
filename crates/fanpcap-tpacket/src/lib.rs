//! The packet socket as an engine: this crate maps the socket's ring, and makes the socket the
//! reader's port.
#![forbid(unsafe_code)]

mod error;
mod socket;
mod input;

pub use error::SocketError;
pub use input::{open, take_over};
pub use socket::Socket;
