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
    let mapping = Mapping::of(socket, &geometry)?;
    let sizes = Sizes::of(&geometry);
    let ring = match version {
        Version::V3 => Blocks::new(mapping, sizes.block, sizes.blocks).map(Ring::V3),
        Version::V2 => Frames::new(mapping, sizes.block, sizes.frame, sizes.frames).map(Ring::V2),
    };
    let retire = Some(geometry.retire).filter(|&retire| retire < FOR_EVER);
    Ok(Input {
        ring: ring.ok_or_else(|| io::Error::from_raw_os_error(EINVAL))?,
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
    let invalid = || io::Error::from_raw_os_error(EINVAL);
    let (version, geometry) = ring::told(told).ok_or_else(invalid)?;
    let mapping = Mapping::of(socket, &geometry)?;
    let sizes = Sizes::of(&geometry);
    let remains = match version {
        Version::V3 => Remains::of_blocks(mapping, sizes.block, sizes.blocks, position),
        Version::V2 => {
            Remains::of_frames(mapping, sizes.block, sizes.frame, sizes.frames, position)
        }
    };
    // packet_poll() takes the lock under which the kernel's timer opens a block. So after this
    // call, the timer has completed a block that it was opening (see the module of `Remains`).
    events::poll(&[socket], Some(Duration::ZERO))?;
    remains.ok_or_else(invalid)
}

/// A ring's sizes in bytes, and its numbers of blocks and frames.
struct Sizes {
    block: usize,
    blocks: usize,
    frame: usize,
    frames: usize,
}

impl Sizes {
    fn of(geometry: &Geometry) -> Self {
        Self {
            block: geometry.block_size as usize,
            blocks: geometry.block_count as usize,
            frame: geometry.frame_size as usize,
            frames: geometry.frame_count as usize,
        }
    }
}
