//! Makes a packet socket's receive ring, and maps a ring's memory, also a second time, in addition
//! to the mapping of the ring's owner.

use crate::netlink::diag::{self, Geometry, PacketSocket};
use crate::option::set;
use crate::packet;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub use crate::mapping::Mapping;

/// The layout of a ring (`PACKET_VERSION`, linux/if_packet.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `TPACKET_V2`: one frame for each packet.
    V2,
    /// `TPACKET_V3`: packets one after the other in blocks.
    V3,
}

/// Makes the receive ring of a socket that has none (`PACKET_RX_RING`, packet(7)).
///
/// # Errors
/// `EINVAL` for a geometry that the kernel does not allow, `ENOMEM`.
pub fn make(socket: BorrowedFd<'_>, version: Version, ring: &Geometry) -> io::Result<()> {
    let number: c_int = match version {
        Version::V2 => 1,
        Version::V3 => 2,
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &number)?;
    // struct tpacket_req3.
    let request = [
        ring.block_size,
        ring.block_count,
        ring.frame_size,
        ring.frame_count,
        ring.retire,
        0,
        0,
    ];
    match version {
        // struct tpacket_req is the beginning of struct tpacket_req3.
        Version::V2 => {
            let [a, b, c, d, ..] = request;
            let request = [a, b, c, d];
            set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
        }
        Version::V3 => set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request),
    }
}

/// Reads version and geometry of a socket's receive ring from packet diag.
///
/// # Errors
/// The kernel's error; `ENOENT` when the socket has no ring of a known layout, or is not in the
/// calling thread's network namespace.
pub fn of(socket: BorrowedFd<'_>) -> io::Result<(Version, Geometry)> {
    let inode = packet::inode(socket)?;
    let mut sockets = diag::packet_sockets()?.into_iter();
    let own = sockets.find(|socket| u64::from(socket.inode) == inode);
    own.and_then(|own| told(&own)).ok_or_else(none)
}

/// Returns version and geometry of the ring from the socket's entry in packet diag. `None` if the
/// socket has no ring of a known version.
pub fn told(socket: &PacketSocket) -> Option<(Version, Geometry)> {
    let version = match socket.version {
        1 => Version::V2,
        2 => Version::V3,
        _ => return None,
    };
    Some((version, socket.ring?))
}

fn none() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

impl Mapping {
    /// Maps the receive ring of a socket. The mapping keeps the socket alive and in its group until
    /// the mapping is dropped.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn of(socket: BorrowedFd<'_>, geometry: &Geometry) -> io::Result<Self> {
        let Geometry {
            block_size,
            block_count,
            ..
        } = *geometry;
        let len = (block_size as usize).checked_mul(block_count as usize);
        let len = len.ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        Self::shared(socket.as_raw_fd(), len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::netns;
    use crate::unix::message::{receive, send};
    use crate::unix::pair;
    use std::os::fd::AsFd;

    const GEOMETRY: Geometry = Geometry {
        block_size: 1 << 16,
        block_count: 3,
        frame_size: 2048,
        frame_count: 96,
        retire: 40,
    };

    #[test]
    #[ignore = "needs root: a packet socket"]
    fn a_ring_that_came_in_a_message_is_mapped_without_privilege() {
        let body = || {
            netns::enter_new().unwrap();
            let [from, to] = pair().unwrap();
            for version in [Version::V2, Version::V3] {
                let owner = packet::open().unwrap();
                make(owner.as_fd(), version, &GEOMETRY).unwrap();
                let own = Mapping::of(owner.as_fd(), &GEOMETRY).unwrap();
                send(from.as_fd(), b"x", &[owner.as_fd()]).unwrap();
                // SAFETY: the mapping has at least one byte. The kernel does not write to the ring
                // of a socket that is not bound.
                unsafe { own.base().write_volatile(version as u8 + 7) };
            }
            // SAFETY: takes plain numbers. The raw system call changes the user of this thread
            // alone.
            let rc = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
            assert_eq!(rc, 0);
            for version in [Version::V2, Version::V3] {
                let message = receive(to.as_fd(), &mut [0], 1).unwrap().unwrap();
                let socket = message.descriptors[0].as_fd();
                let (found, geometry) = of(socket).unwrap();
                assert_eq!(found, version);
                let retire = if version == Version::V3 { 40 } else { 0 };
                assert_eq!(geometry, Geometry { retire, ..GEOMETRY });
                let ring = Mapping::of(socket, &geometry).unwrap();
                // SAFETY: the mapping has at least one byte.
                let first = unsafe { ring.base().read_volatile() };
                assert_eq!(first, version as u8 + 7);
            }
        };
        std::thread::spawn(body).join().unwrap();
    }
}
