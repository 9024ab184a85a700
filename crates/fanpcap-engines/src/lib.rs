//! The engines of this build that take devices. A new engine is a crate and a line here.
#![forbid(unsafe_code)]

use fanpcap_engine::Engine;
use fanpcap_linux::netlink::diag::PacketSocket;
use fanpcap_reader::Input;
use fanpcap_ring::{Position, Remains};
use std::io;
use std::os::fd::BorrowedFd;

/// All of them.
pub static ENGINES: [&dyn Engine; 1] = [&fanpcap_xdp::Xdp];

/// The engine with this number, which the tables of groups have.
pub fn numbered(id: u64) -> Option<&'static dyn Engine> {
    let mut all = ENGINES.into_iter();
    all.find(|engine| u64::from(engine.id()) == id)
}

/// The engine of this name.
pub fn named(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.into_iter().find(|engine| engine.name() == name)
}

/// What a packet socket reads, by its own ring.
///
/// # Errors
/// As [`fanpcap_tpacket::open`].
pub fn of_socket(socket: BorrowedFd<'static>) -> io::Result<Input> {
    fanpcap_tpacket::open(socket)
}

/// What a member has left unread in the ring of its packet socket, which the roster `told` of.
///
/// # Errors
/// As [`fanpcap_tpacket::take_over`].
pub fn remains_of_socket(
    socket: BorrowedFd<'_>,
    told: &PacketSocket,
    position: Position,
) -> io::Result<Remains> {
    fanpcap_tpacket::take_over(socket, told, position)
}
