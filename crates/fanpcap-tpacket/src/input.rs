//! A packet socket's ring, mapped beside the mapping of the system's library.

use crate::socket::Socket;
use fanpcap_linux::packet::ring::{self, Mapping, Version};
use fanpcap_reader::{Input, Ring};
use fanpcap_ring::{Blocks, Frames};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// `UINT_MAX`, which the system's libpcap sets for a time-out of 0. Kernels before 6.18 keep 16
/// bits.
const FOR_EVER: u32 = 65_535;

const EINVAL: i32 = 22;

/// Maps the ring that `socket` has and of which nothing has been read. The socket must stay open as
/// long as the reader lives.
///
/// # Errors
/// When the ring can't be found or mapped; the socket is as it was.
pub fn open(socket: BorrowedFd<'static>) -> io::Result<Input> {
    let (version, geometry) = ring::of(socket)?;
    let mapping = Mapping::of(socket, &geometry)?;
    let block = geometry.block_size as usize;
    let ring = match version {
        Version::V3 => Blocks::new(mapping, block, geometry.block_count as usize).map(Ring::V3),
        Version::V2 => {
            let (frame, count) = (geometry.frame_size, geometry.frame_count);
            Frames::new(mapping, block, frame as usize, count as usize).map(Ring::V2)
        }
    };
    let retire = Some(geometry.retire).filter(|&retire| retire < FOR_EVER);
    Ok(Input {
        ring: ring.ok_or_else(|| io::Error::from_raw_os_error(EINVAL))?,
        port: Arc::new(Socket::new(socket)),
        timeout: retire.map(|retire| Duration::from_millis(retire.into())),
    })
}
