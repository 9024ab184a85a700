//! The source `afxdp`: AF_XDP sockets, one for each receive queue of a device. A small XDP program
//! redirects the packets of each queue to its socket, so the host does not get them. Packets that
//! the host sends do not come.

use crate::burst::{Burst, Packet};
use crate::source::{Source, SourceCounts, SourceError};
use fanpcap_bpf::kernel::{REDIRECT_MAP, XDP_PASS, xdp};
use fanpcap_bpf::{Instruction, MapKind, ProgramKind};
use fanpcap_linux::bpf::{Attached, Hook, LoadedProgram, ObjectArray};
use fanpcap_linux::packet::ring::Mapping;
use fanpcap_linux::packet::{self, Address, inject};
use fanpcap_linux::wait;
use fanpcap_linux::xsk::{Counts, Socket, Statistics};
use fanpcap_ring::Chunks;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A receive queue as a source.
#[derive(Debug)]
pub struct AfxdpSource {
    socket: Socket,
    chunks: Chunks,
    queue: u16,
    /// Packets that were lent.
    lent: u64,
    /// `lent` at the last check.
    checked: u64,
    /// The kernel's counters, as they were last read, and how often they could not be read.
    statistics: Statistics,
    failed: u64,
    device: Arc<Device>,
}

/// What the sources of a device share. When the last of them ends, the kernel detaches the XDP
/// program.
#[derive(Debug)]
struct Device {
    link: Attached,
    /// Sends frames.
    sender: OwnedFd,
}

/// Bytes of a chunk. The kernel puts at most 256 bytes less into it, so longer packets are dropped
/// and counted.
const CHUNK_LEN: u32 = 4096;

/// The chunks of a queue: 16 MiB.
const CHUNKS: u32 = 4096;

/// Takes the packets of the device's first `queues` receive queues, from now on. The device is in
/// the calling thread's network namespace. Uses zero-copy where the driver has it.
///
/// # Errors
/// `EBUSY` or `EEXIST` when the device has another XDP program, or a queue has another socket. The
/// kernel frees a queue a moment after its socket was closed (net/xdp/xsk_buff_pool.c,
/// `xp_put_pool`). `EPERM` without `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_BPF`; `EOPNOTSUPP` when
/// the driver lacks XDP; `EINVAL` for a queue that the device does not have.
pub fn open(ifindex: u32, queues: u16) -> io::Result<Vec<AfxdpSource>> {
    let sockets = ObjectArray::create(NAME, MapKind::SocketArray, queues.into())?;
    let mut opened = Vec::new();
    for queue in 0..queues {
        let memory = Mapping::anonymous((CHUNK_LEN * CHUNKS) as usize)?;
        let counts = Counts {
            received: CHUNKS,
            fill: CHUNKS,
        };
        let (socket, rings) = Socket::open(&memory, CHUNK_LEN, counts)?;
        let chunks = Chunks::new(memory, CHUNK_LEN, rings).ok_or(io::ErrorKind::InvalidData)?;
        socket.bind(ifindex, queue.into())?;
        sockets.put(queue.into(), &[socket.as_fd()])?;
        opened.push((socket, chunks, queue));
    }
    let sender = packet::open()?;
    let address = Address {
        ifindex,
        protocol: 0,
    };
    packet::bind(sender.as_fd(), address)?;
    let code = redirect(sockets.as_fd().as_raw_fd());
    let program = LoadedProgram::load(ProgramKind::Xdp, NAME, &code);
    let program = program.map_err(|refused| refused.error)?;
    let link = program.attach(ifindex, Hook::Driver)?;
    let device = Arc::new(Device { link, sender });
    let source = |(socket, chunks, queue)| AfxdpSource {
        socket,
        chunks,
        queue,
        lent: 0,
        checked: 0,
        statistics: Statistics::default(),
        failed: 0,
        device: Arc::clone(&device),
    };
    Ok(opened.into_iter().map(source).collect())
}

impl AfxdpSource {
    /// Whether the driver writes packets into the source's memory.
    ///
    /// # Errors
    /// The error of getsockopt(2).
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        self.socket.is_zero_copy()
    }
}

impl Source for AfxdpSource {
    fn burst<'s>(&'s mut self, burst: &mut Burst<'s>) -> Result<(), SourceError> {
        let count = &mut self.lent;
        let lent = self.chunks.lend(burst.room(), |bytes| {
            *count += 1;
            burst.push(Packet::of(bytes));
        });
        lent.map_err(|_| SourceError::Corrupt)
    }

    fn has_filled(&self, quarters: u8) -> bool {
        self.chunks.waiting() > CHUNKS / 4 * u32::from(quarters)
    }

    fn release(&mut self) {
        if self.chunks.release() {
            self.socket.wake_driver();
        }
    }

    fn check(&mut self) -> Result<(), SourceError> {
        // The kernel unbinds the socket when the device is removed, and says so by an error.
        let error = wait::take_error(self.socket.as_fd()).map_err(SourceError::Other)?;
        // If packets have come, the XDP program is attached. The kernel takes rtnl_lock() to answer
        // (bpf_xdp_link_fill_link_info(), net/core/dev.c). This thread could wait for that lock
        // while packets come, and lose them.
        let has_come = mem::replace(&mut self.checked, self.lent) != self.lent;
        let is_attached = has_come || self.device.link.ifindex().map_err(SourceError::Other)? != 0;
        match error {
            None if is_attached => Ok(()),
            _ => Err(SourceError::Gone),
        }
    }

    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn transmit(&mut self, frame: &[u8]) -> io::Result<bool> {
        inject::try_send(self.device.sender.as_fd(), frame)
    }

    fn queue(&self) -> u16 {
        self.queue
    }

    fn counts(&mut self) -> SourceCounts {
        match self.socket.statistics() {
            Ok(statistics) => self.statistics = statistics,
            Err(_) => self.failed += 1,
        }
        let Statistics {
            dropped,
            ring_full,
            fill_empty,
        } = self.statistics;
        SourceCounts {
            received: self.lent + dropped + ring_full,
            dropped: dropped + ring_full,
            skipped: 0,
            starved: fill_empty,
            faulty: 0,
            failed: self.failed,
        }
    }
}

/// The XDP program: redirects a packet to the socket of its receive queue. The host gets packets of
/// queues without a socket.
fn redirect(sockets: i32) -> [Instruction; 6] {
    let [map, second] = Instruction::map(1, sockets);
    [
        Instruction::new(LOAD_WORD, 2, 1, xdp::RX_QUEUE_INDEX, 0),
        map,
        second,
        Instruction::set(3, XDP_PASS),
        Instruction::new(CALL, 0, 0, 0, REDIRECT_MAP),
        Instruction::exit(),
    ]
}

/// The name of the map and the XDP program in the kernel.
pub(crate) const NAME: &str = "fanpcap_afxdp";

// linux/bpf_common.h: BPF_LDX | BPF_MEM | BPF_W; linux/bpf.h: BPF_JMP | BPF_CALL.
const LOAD_WORD: u8 = 0x61;
const CALL: u8 = 0x85;
