//! Replaces a packet socket whose device is gone by a new one, which gets the same descriptor.
//!
//! A socket can't leave its fanout group, and the kernel refuses to bind a member of a group to
//! another device (af_packet.c, `packet_do_bind`). As long as any member of the group is open or
//! mapped, no group with the same number can begin on another device (`fanout_add`).

use crate::errno::{check, owned};
use crate::mapping;
use crate::netlink::diag::Geometry;
use crate::option::{get, set};
use crate::packet;
use crate::packet::ring::{self, Version};
use std::ffi::{c_int, c_uint};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Closes the socket behind `fd` and puts a new socket in its place: of the same type, with the
/// same options and with a ring of the same `geometry`, but bound to no device. Mappings of the old
/// ring in this process, such as that of the system's libpcap, become private memory.
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW`; `ENOMEM` and the like for the ring. The old socket then stays.
pub fn replace(fd: BorrowedFd<'_>, (version, geometry): (Version, &Geometry)) -> io::Result<()> {
    let kind: c_int = get(fd, libc::SOL_SOCKET, libc::SO_TYPE)?;
    // SAFETY: socket takes no pointers.
    let new = owned(unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) })?;
    for option in [libc::PACKET_RESERVE, PACKET_TIMESTAMP] {
        let value: c_int = get(fd, libc::SOL_PACKET, option)?;
        set(new.as_fd(), libc::SOL_PACKET, option, &value)?;
    }
    ring::make(new.as_fd(), version, geometry)?;
    // SAFETY: fcntl takes plain numbers here.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    check(flags)?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(new.as_raw_fd(), libc::F_SETFL, flags) })?;
    mapping::detach_socket(packet::inode(fd)?)?;
    // SAFETY: dup3 takes plain numbers. It closes the old socket, and nothing else has this number.
    check(unsafe { libc::dup3(new.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) })
}

/// Makes the device promiscuous as long as the socket is open and the device exists.
///
/// # Errors
/// The error of setsockopt(2).
pub fn make_promiscuous(fd: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    // struct packet_mreq: the index, the type and length of an address, and the address.
    let request: [c_uint; 4] = [ifindex, PACKET_MR_PROMISC, 0, 0];
    set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

// linux/if_packet.h.
const PACKET_TIMESTAMP: c_int = 17;
#[cfg(target_endian = "little")]
const PACKET_MR_PROMISC: c_uint = 1;
#[cfg(target_endian = "big")]
const PACKET_MR_PROMISC: c_uint = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::ring::{self, Mapping};
    use crate::process::netns;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    #[ignore = "needs root: packet sockets"]
    fn a_new_socket_has_the_descriptor_and_the_ring_of_the_old_one() {
        let body = || {
            netns::enter_new().unwrap();
            let socket = packet::open().unwrap();
            let fd = socket.as_fd();
            set(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &2_i32).unwrap();
            set(fd, libc::SOL_PACKET, libc::PACKET_RESERVE, &4_i32).unwrap();
            let request: [u32; 7] = [1 << 16, 3, 2048, 96, 40, 0, 0];
            set(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).unwrap();
            let before = packet::inode(fd).unwrap();
            let (version, geometry) = ring::of(fd).unwrap();
            let mapping = Mapping::of(fd, &geometry).unwrap();
            replace(fd, (version, &geometry)).unwrap();
            assert_ne!(packet::inode(fd).unwrap(), before);
            assert_eq!(ring::of(fd).unwrap(), (version, geometry));
            let reserve: c_int = get(fd, libc::SOL_PACKET, libc::PACKET_RESERVE).unwrap();
            assert_eq!(reserve, 4);
            // A child of another test has a copy of the old one until it runs its program.
            let limit = Instant::now() + Duration::from_secs(60);
            let others = || crate::netlink::diag::packet_sockets().unwrap();
            while others().iter().any(|it| u64::from(it.inode) == before) {
                assert!(Instant::now() < limit, "the old socket is still there");
                thread::sleep(Duration::from_millis(1));
            }
            drop(mapping);
            make_promiscuous(fd, crate::interface::index("lo").unwrap()).unwrap();
        };
        thread::spawn(body).join().unwrap();
    }
}
