//! Packet sockets: address, fanout group, filter and statistics of an open descriptor.

pub mod inject;
pub mod optmem;
pub mod ring;
pub mod renew;
pub mod apart;

use crate::errno::{check, owned};
use crate::mapping;
use crate::option::{get, set, socklen};
use fanpcap_bpf::Classic;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Every protocol (`ETH_P_ALL`, linux/if_ether.h).
pub const ETH_P_ALL: u16 = 0x0003;

/// A protocol that no frame carries: `ETH_P_DDCMP`, a kernel-internal number below 0x600
/// (linux/if_ether.h). `eth_type_trans` never returns this number, and no driver sets it. So a
/// socket that is bound to this protocol gets no packet.
pub const ETH_P_SILENT: u16 = 0x0006;

/// The kernel reassembles IPv4 fragments before it steers the packet (linux/if_packet.h).
pub const FANOUT_FLAG_DEFRAG: u16 = 0x8000;
/// If a member has no room for a packet, the next member gets the packet.
pub const FANOUT_FLAG_ROLLOVER: u16 = 0x1000;
/// The kernel picks the group number.
pub const FANOUT_FLAG_UNIQUEID: u16 = 0x2000;
/// The kernel does not deliver packets that the host sends (since Linux 5.11).
pub const FANOUT_FLAG_IGNORE_OUTGOING: u16 = 0x4000;

/// The interface and the protocol to which a packet socket is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Interface index; 0 means all interfaces.
    pub ifindex: u32,
    /// Protocol in host byte order, `ETH_P_*`.
    pub protocol: u16,
}

/// A fanout group of the kernel, as `PACKET_FANOUT` sets and reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFanout {
    /// Group number, unique in a network namespace.
    pub id: u16,
    /// `PACKET_FANOUT_*` mode number.
    pub mode: u8,
    /// `PACKET_FANOUT_FLAG_*`, in the upper byte.
    pub flags: u16,
}

/// The kernel's counters since the last read (`PACKET_STATISTICS`). Each read clears the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that passed the filter, including dropped packets.
    pub packets: u32,
    /// Packets lost because the ring or the socket's queue was full.
    pub drops: u32,
}

/// Opens a packet socket for whole frames. The socket receives no packets until it is bound.
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW`.
pub fn open() -> io::Result<OwnedFd> {
    // SAFETY: socket takes no pointers.
    owned(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })
}

/// Whether a descriptor is a packet socket.
///
/// # Errors
/// The error of getsockopt(2).
pub fn is_packet_socket(fd: BorrowedFd<'_>) -> io::Result<bool> {
    match get::<c_int>(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) {
        Ok(domain) => Ok(domain == libc::AF_PACKET),
        Err(error) if error.raw_os_error() == Some(libc::ENOTSOCK) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a packet socket delivers packets without their link-layer header (`SOCK_DGRAM`,
/// packet(7)). libpcap calls such a socket cooked.
///
/// # Errors
/// The error of getsockopt(2).
pub fn is_cooked(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let kind = get::<c_int>(fd, libc::SOL_SOCKET, libc::SO_TYPE)?;
    Ok(kind == libc::SOCK_DGRAM)
}

/// Returns the inode number of a socket, which packet diag also reports.
pub fn inode(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut stat = mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `stat` has room for the struct that the call writes.
    check(unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded, so it has written the whole struct.
    Ok(unsafe { stat.assume_init() }.st_ino)
}

/// Returns the addresses at which the mappings of a socket begin and end in this process (proc(5)).
///
/// # Errors
/// `ENOENT` without /proc, and other errors of reading it.
pub fn mappings(inode: u64) -> io::Result<Vec<(usize, usize)>> {
    mapping::of_socket(inode)
}

/// Returns the kernel's number of a socket (`SO_COOKIE`, since Linux 4.12). No other socket of its
/// network namespace ever gets the same number.
///
/// # Errors
/// The error of getsockopt(2).
pub fn cookie(fd: BorrowedFd<'_>) -> io::Result<u64> {
    get(fd, libc::SOL_SOCKET, libc::SO_COOKIE)
}

/// Makes exec(3) close the descriptor of a socket. Without this, a process that this process starts
/// would keep the socket in its group after this process has closed the descriptor.
pub fn close_on_exec(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: fcntl takes plain numbers here.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) })
}

/// Returns the interface and the protocol to which a packet socket is bound.
pub fn address(fd: BorrowedFd<'_>) -> io::Result<Address> {
    let sll = sockaddr(fd)?;
    Ok(Address {
        ifindex: u32::try_from(sll.sll_ifindex).unwrap_or(0),
        protocol: u16::from_be(sll.sll_protocol),
    })
}

/// Returns the hardware type (`ARPHRD_*`, linux/if_arp.h) of the interface that a packet socket is
/// bound to; 0 when the socket is bound to no interface.
pub fn hardware_type(fd: BorrowedFd<'_>) -> io::Result<u16> {
    sockaddr(fd).map(|sll| sll.sll_hatype)
}

fn sockaddr(fd: BorrowedFd<'_>) -> io::Result<libc::sockaddr_ll> {
    let mut sll = blank_sockaddr();
    let mut len = socklen::<libc::sockaddr_ll>();
    // SAFETY: `sll` and `len` are live for the call and `len` is the size of `sll`.
    let rc = unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut sll).cast(), &raw mut len) };
    check(rc).map(|()| sll)
}

/// Whether the kernel has unbound a packet socket because the interface was removed
/// (net/packet/af_packet.c, `packet_notifier`).
pub fn is_unbound(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sockaddr(fd)?.sll_ifindex == -1)
}

/// Binds a packet socket. From now on, the socket receives the packets of `address` that pass its
/// filter.
pub fn bind(fd: BorrowedFd<'_>, address: Address) -> io::Result<()> {
    let sll = libc::sockaddr_ll {
        sll_ifindex: c_int::try_from(address.ifindex).unwrap_or(c_int::MAX),
        sll_protocol: address.protocol.to_be(),
        ..blank_sockaddr()
    };
    let len = socklen::<libc::sockaddr_ll>();
    // SAFETY: `sll` is a whole sockaddr_ll of `len` bytes, live for the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const sll).cast(), len) })
}

/// Why the kernel refuses a socket that joins a fanout group.
#[derive(Debug)]
pub enum Refusal {
    /// `EINVAL`: the group has another mode, other flags, another device or another protocol, or
    /// the kernel does not have the mode.
    Conflict(io::Error),
    /// `EALREADY`: the socket is already in a group.
    Joined,
    /// `ENOSPC`: the group has 256 members.
    Full,
    /// Another error.
    Other(io::Error),
}

/// Makes a packet socket join a fanout group (`PACKET_FANOUT`; packet(7), net/packet/af_packet.c
/// `fanout_add`).
pub fn join(fd: BorrowedFd<'_>, fanout: PacketFanout) -> Result<(), Refusal> {
    let kind = u32::from(fanout.mode) | u32::from(fanout.flags);
    let word = u32::from(fanout.id) | (kind << 16);
    set(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &word).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EINVAL) => Refusal::Conflict(error),
            Some(libc::EALREADY) => Refusal::Joined,
            Some(libc::ENOSPC) => Refusal::Full,
            _ => Refusal::Other(error),
        }
    })
}

/// Returns the fanout group of a packet socket; all zeros for a socket in no group.
pub fn fanout(fd: BorrowedFd<'_>) -> io::Result<PacketFanout> {
    let word: u32 = get(fd, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
    let [id_low, id_high, mode, flags] = word.to_le_bytes();
    Ok(PacketFanout {
        id: u16::from_le_bytes([id_low, id_high]),
        mode,
        flags: u16::from(flags) << 8,
    })
}

/// A socket's classic filter (linux/filter.h).
#[derive(Debug)]
pub struct Filter(Vec<Classic>);

impl Filter {
    /// The filter with these instructions. The kernel checks them when the filter is attached.
    pub fn new(code: Vec<Classic>) -> Self {
        Self(code)
    }

    /// A filter that rejects all packets.
    pub fn reject_all() -> Self {
        Self::keep(0)
    }

    /// A filter with these instructions.
    pub fn of_code(code: Vec<Classic>) -> Self {
        Self(code)
    }

    /// A filter that accepts all packets and keeps only their first `snaplen` bytes. The kernel
    /// then copies only these bytes.
    pub fn keep(snaplen: u32) -> Self {
        Self::new(vec![Classic::keep(snaplen)])
    }

    /// Returns a socket's classic filter (`SO_GET_FILTER`, whose lengths are numbers of
    /// instructions). `None` if the socket has no filter.
    ///
    /// # Errors
    /// `EACCES` when the socket's filter is an eBPF program.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let mut program = vec![Classic::new(0, 0); BPF_MAXINSNS];
        let mut len = libc::socklen_t::try_from(program.len()).unwrap_or(0);
        let target: *mut c_void = program.as_mut_ptr().cast();
        let (level, name) = (libc::SOL_SOCKET, libc::SO_GET_FILTER);
        // SAFETY: `target` has room for `len` instructions.
        let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, target, &raw mut len) };
        check(rc)?;
        program.truncate(usize::try_from(len).unwrap_or(0));
        Ok((!program.is_empty()).then_some(Self(program)))
    }

    /// The filter's instructions.
    pub fn instructions(&self) -> &[Classic] {
        &self.0
    }

    /// Attaches the filter to a socket, in place of the socket's present filter.
    pub fn attach(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let len = u16::try_from(self.0.len()).unwrap_or(u16::MAX);
        // The kernel only reads the instructions, although the struct's pointer is mutable.
        let filter = self.0.as_ptr().cast_mut().cast();
        let program = libc::sock_fprog { len, filter };
        set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }
}

const _: () = assert!(size_of::<Classic>() == size_of::<libc::sock_filter>());

/// The longest classic BPF program that a socket accepts, in instructions (linux/bpf_common.h).
const BPF_MAXINSNS: usize = 4096;

/// Detaches the socket's filter.
pub fn detach_filter(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32)
}

/// Attaches a loaded eBPF program of type socket filter (`SO_ATTACH_BPF`), in place of the socket's
/// present filter.
pub fn attach_program(fd: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    set(
        fd,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_BPF,
        &program.as_raw_fd(),
    )
}

/// Sets the BPF program of the socket's fanout group, which has the mode `PACKET_FANOUT_EBPF`
/// (`PACKET_FANOUT_DATA`; af_packet.c, `fanout_set_data_ebpf`). Any member may set the BPF program.
/// The BPF program's result, modulo the number of members, is the position in the group of the
/// member that gets the packet.
///
/// # Errors
/// `EINVAL` when the socket's group has another mode, or the BPF program has another type. `EPERM`
/// when the socket's filter is locked.
pub fn set_fanout_program(fd: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let number = program.as_raw_fd();
    set(fd, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, &number)
}

/// Reads and clears the socket's counters.
pub fn take_statistics(fd: BorrowedFd<'_>) -> io::Result<Statistics> {
    // For TPACKET_V3 the kernel writes three words, for older rings only two.
    let [packets, drops, _freezes]: [u32; 3] = get(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok(Statistics { packets, drops })
}

fn blank_sockaddr() -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: 17, // AF_PACKET, in the type of this field
        sll_protocol: 0,
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_cookie_is_that_of_the_socket_not_of_the_descriptor() {
        let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let same = one.try_clone().unwrap();
        assert_eq!(cookie(one.as_fd()).unwrap(), cookie(same.as_fd()).unwrap());
        assert_ne!(cookie(one.as_fd()).unwrap(), cookie(other.as_fd()).unwrap());
    }

    #[test]
    fn other_sockets_are_told_apart() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(!is_packet_socket(udp.as_fd()).unwrap());
        assert!(
            join(
                udp.as_fd(),
                PacketFanout {
                    id: 1,
                    mode: 0,
                    flags: 0
                }
            )
            .is_err()
        );
    }
}
