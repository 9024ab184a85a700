//! AF_XDP sockets (Documentation/networking/af_xdp.rst, linux/if_xdp.h): a process gets the packets
//! of one receive queue in its own memory. An XDP program redirects packets to a socket.

use crate::errno::{check, owned};
use crate::mapping::{Mapping, READ_AND_WRITE};
use crate::option::{get, set};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;

/// An AF_XDP socket.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// A ring that the process and the kernel share, and the offsets in its memory.
#[derive(Debug)]
pub struct RingMemory {
    /// The memory.
    pub mapping: Mapping,
    /// The offset of the producer's count, 32 bits.
    pub producer: usize,
    /// The offset of the consumer's count, 32 bits.
    pub consumer: usize,
    /// The offset of the flags, 32 bits.
    pub flags: usize,
    /// The offset of the first entry.
    pub entries: usize,
    /// The number of entries, a power of two.
    pub count: u32,
}

/// The rings of a socket that only receives.
#[derive(Debug)]
pub struct Rings {
    /// The received packets: `struct xdp_desc`.
    pub received: RingMemory,
    /// The memory that the process gives to the kernel: offsets of 64 bits.
    pub fill: RingMemory,
}

/// The kernel's counters of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets dropped because they were too long, or because the kernel had no memory for them.
    pub dropped: u64,
    /// Packets dropped because the ring was full.
    pub ring_full: u64,
    /// How often the fill ring had no memory for a packet. If the kernel copies the packets, each
    /// such packet is one of `dropped`. If the driver writes them into the memory, it has dropped
    /// packets, which the device counts, or has tried again (net/xdp/xsk_buff_pool.c, `xp_alloc`).
    pub fill_empty: u64,
}

/// Bytes of `struct xdp_desc`.
pub const DESCRIPTOR_LEN: usize = 16;

impl Socket {
    /// Opens a socket whose packets come into `memory`, in chunks of `chunk_len` bytes, and makes
    /// its rings. The kernel pins the memory as long as the socket is open.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENOBUFS` when the process may not lock so much memory;
    /// `EINVAL` for wrong lengths; `EAFNOSUPPORT` when the kernel lacks AF_XDP.
    pub fn open(memory: &Mapping, chunk_len: u32, counts: Counts) -> io::Result<(Self, Rings)> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes no pointers.
        let socket = Self(owned(unsafe { libc::socket(libc::AF_XDP, kind, 0) })?);
        let [len, chunk_len] = [memory.len() as u64, u64::from(chunk_len)];
        // struct xdp_umem_reg without the fields that came after Linux 5.4: address, length, length
        // of a chunk, headroom, flags.
        let address = memory.base().as_ptr().expose_provenance() as u64;
        let register: [u64; 4] = [address, len, low_first(chunk_len), 0];
        socket.set(libc::XDP_UMEM_REG, &register)?;
        socket.set(libc::XDP_UMEM_FILL_RING, &counts.fill)?;
        // The kernel wants this ring although nothing is sent.
        socket.set(libc::XDP_UMEM_COMPLETION_RING, &SMALLEST)?;
        socket.set(libc::XDP_RX_RING, &counts.received)?;
        // struct xdp_mmap_offsets: for each of four rings the offsets of producer, consumer,
        // entries, flags.
        let offsets: [u64; 16] = get(socket.as_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let received = (
            libc::XDP_PGOFF_RX_RING as u64,
            counts.received,
            DESCRIPTOR_LEN,
        );
        let fill = (
            libc::XDP_UMEM_PGOFF_FILL_RING,
            counts.fill,
            size_of::<u64>(),
        );
        let rings = Rings {
            received: socket.map(received, &offsets[..4])?,
            fill: socket.map(fill, &offsets[8..12])?,
        };
        Ok((socket, rings))
    }

    /// Binds the socket to a receive queue of a device. The kernel copies no packets if the driver
    /// can write them into the memory (zero-copy).
    ///
    /// # Errors
    /// `EBUSY` when the queue has a socket; `EINVAL` for a queue that the device does not have;
    /// `ENODEV`, `ENETDOWN`.
    pub fn bind(&self, ifindex: u32, queue: u32) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: u16::try_from(libc::AF_XDP).unwrap_or(0),
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = crate::option::socklen::<libc::sockaddr_xdp>();
        let fd = self.0.as_raw_fd();
        // SAFETY: the address is a whole sockaddr_xdp of `len` bytes, live for the call.
        check(unsafe { libc::bind(fd, (&raw const address).cast(), len) })
    }

    /// Whether the driver writes packets into the memory.
    ///
    /// # Errors
    /// The error of getsockopt(2).
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        let flags: u32 = get(self.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS)?;
        Ok(flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Reads the counters since the socket was opened.
    ///
    /// # Errors
    /// The error of getsockopt(2).
    pub fn statistics(&self) -> io::Result<Statistics> {
        // struct xdp_statistics.
        let counts: [u64; 6] = get(self.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS)?;
        let [dropped, _, _, ring_full, fill_empty, _] = counts;
        Ok(Statistics {
            dropped,
            ring_full,
            fill_empty,
        })
    }

    /// Makes the driver take the memory in the fill ring, if the ring's flags ask for this call
    /// (`XDP_RING_NEED_WAKEUP`). Best effort: the next call does it too.
    pub fn wake_driver(&self) {
        let (fd, none) = (self.0.as_raw_fd(), null_mut());
        // SAFETY: the call receives nothing, so it uses no memory of the process.
        unsafe { libc::recvfrom(fd, none, 0, libc::MSG_DONTWAIT, null_mut(), null_mut()) };
    }

    fn set<T>(&self, name: i32, value: &T) -> io::Result<()> {
        set(self.as_fd(), libc::SOL_XDP, name, value)
    }

    fn map(&self, ring: (u64, u32, usize), offsets: &[u64]) -> io::Result<RingMemory> {
        let (page_offset, count, entry_len) = ring;
        let wrong = |_| io::Error::from(io::ErrorKind::InvalidData);
        let offset = |index: usize| usize::try_from(offsets[index]).map_err(wrong);
        let [producer, consumer, entries, flags] = [offset(0)?, offset(1)?, offset(2)?, offset(3)?];
        let len = entries + count as usize * entry_len;
        let page_offset = usize::try_from(page_offset).map_err(wrong)?;
        let fd = self.0.as_raw_fd();
        let populate = libc::MAP_POPULATE;
        Ok(RingMemory {
            mapping: Mapping::new(len, READ_AND_WRITE, populate, fd, page_offset)?,
            producer,
            consumer,
            flags,
            entries,
            count,
        })
    }
}

/// The numbers of entries of a socket's rings, powers of two.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Received packets.
    pub received: u32,
    /// Chunks of memory for the kernel.
    pub fill: u32,
}

const SMALLEST: u32 = 2;

/// Flag of a ring: the process has to wake the driver.
pub const NEED_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;

/// The 64 bits of two fields of 32 bits, of which the first has this number and the second 0.
fn low_first(number: u64) -> u64 {
    if cfg!(target_endian = "big") {
        number << 32
    } else {
        number
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
