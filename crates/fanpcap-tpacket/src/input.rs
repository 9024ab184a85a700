//! Maps a packet socket's ring a second time, beside the mapping of the system's libpcap.

use crate::socket::Socket;
use fanpcap_linux::netlink::diag::{Geometry, PacketSocket};
use fanpcap_linux::packet::ring::{self, Mapping, Version};
use fanpcap_linux::wait::events;
use fanpcap_reader::{Input, Ring};
use fanpcap_ring::{Blocks, Frames, Position, Remains};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A block time-out of this number of milliseconds or more means that blocks never time out. For a
/// time-out of 0, the system's libpcap sets `UINT_MAX`, of which kernels before 6.18 keep 16 bits.
const FOR_EVER: u32 = 65_535;

const EINVAL: i32 = 22;

/// Maps the ring of `socket`, from which no packet has been read. The socket must stay open as long
/// as the reader lives.
///
/// # Errors
/// The kernel does not report the ring, or the ring can't be mapped. After an error, the socket is
/// unchanged.
pub fn open(socket: BorrowedFd<'static>) -> io::Result<Input> {
    let (version, geometry) = ring::of(socket)?;
    let ring = map(socket, version, &geometry)?;
    let retire = Some(geometry.retire).filter(|&retire| retire < FOR_EVER);
    Ok(Input {
        ring,
        port: Arc::new(Socket::new(socket)),
        timeout: retire.map(|retire| Duration::from_millis(retire.into())),
    })
}

/// Maps the ring of a dead member's `socket`, in which all packets after `position` are unread. The
/// caller has made sure that the ring gets no more packets: the socket's filter rejects all
/// packets, and no packet is in flight. `told` is the socket's entry in packet diag.
///
/// # Errors
/// As [`open`].
pub fn take_over(
    socket: BorrowedFd<'_>,
    told: &PacketSocket,
    position: Position,
) -> io::Result<Remains> {
    let (version, geometry) = ring::told(told).ok_or_else(invalid)?;
    let remains = Remains::of(map(socket, version, &geometry)?, position);
    // packet_poll() takes the lock under which the kernel's timer opens a block. So after this
    // call, the timer has completed a block that it was opening (see the module of `Remains`).
    events::poll(&[socket], Some(Duration::ZERO))?;
    Ok(remains)
}

fn map(socket: BorrowedFd<'_>, version: Version, geometry: &Geometry) -> io::Result<Ring> {
    let mapping = Mapping::of(socket, geometry)?;
    let (block, blocks) = (geometry.block_size as usize, geometry.block_count as usize);
    let (frame, frames) = (geometry.frame_size as usize, geometry.frame_count as usize);
    let ring = match version {
        Version::V3 => Blocks::new(mapping, block, blocks).map(Ring::V3),
        Version::V2 => Frames::new(mapping, block, frame, frames).map(Ring::V2),
    };
    ring.ok_or_else(invalid)
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(EINVAL)
}
