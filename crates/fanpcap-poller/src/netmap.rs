//! The source `netmap`: the receive rings of a device, in memory that the process shares with
//! netmap's kernel module. The host gets no packets of these rings. Its transmit rings and the
//! module's host rings are left alone, so the host goes on sending.

use crate::burst::{Burst, Packet};
use crate::device_socket::DeviceSocket;
use crate::packet::WallClock;
use crate::source::{Source, SourceCounts, SourceError};
use fanpcap_linux::netmap::ReceiveRing;
use fanpcap_linux::wait::ENXIO;
use fanpcap_ring::NetmapRing;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::{io, mem};

/// The system calls of a source.
pub trait Control: Send {
    /// Gives the free slots of the ring to the module, and shows the packets that have come.
    ///
    /// # Errors
    /// As [`ReceiveRing::sync`].
    fn sync(&self) -> io::Result<()>;

    /// The descriptor that poll(2) finds readable when packets have come. poll(2) does what
    /// [`Control::sync`] does.
    fn waits_on(&self) -> BorrowedFd<'_>;

    /// See [`Source::check`].
    ///
    /// # Errors
    /// As there.
    fn check(&self) -> Result<(), SourceError>;

    /// See [`Source::transmit`].
    ///
    /// # Errors
    /// As there.
    fn transmit(&self, frame: &[u8]) -> io::Result<bool>;
}

/// The kernel's module and network stack.
#[derive(Debug)]
pub struct Kernel {
    ring: ReceiveRing,
    /// The transmit rings stay with the host, so frames go to the device by a socket.
    socket: Arc<DeviceSocket>,
}

impl Control for Kernel {
    fn sync(&self) -> io::Result<()> {
        self.ring.sync()
    }

    fn waits_on(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    fn check(&self) -> Result<(), SourceError> {
        self.socket.check()
    }

    fn transmit(&self, frame: &[u8]) -> io::Result<bool> {
        self.socket.send(frame)
    }
}

/// A receive ring as a source.
#[derive(Debug)]
pub struct NetmapSource<C> {
    ring: NetmapRing,
    control: C,
    queue: u16,
    clock: WallClock,
    /// Slots that are free since the last system call.
    free: u32,
    /// Whether the last burst had no packet, although slots wait: the end of a packet has not come.
    is_unfinished: bool,
    lent: u64,
    /// The ring's tail after the last system call that [`NetmapSource::note_full`] has seen.
    tail: u32,
    /// How often a system call left the ring full.
    full: u64,
}

/// Takes the packets of all receive rings of a device, `rings` of them, from now on. The device is
/// in the calling thread's network namespace.
///
/// # Errors
/// As [`ReceiveRing::open`]; `EPERM` without `CAP_NET_RAW`; `InvalidData` for memory that has no
/// such rings.
pub fn open(ifindex: u32, device: &str, rings: u16) -> io::Result<Vec<NetmapSource<Kernel>>> {
    let socket = Arc::new(DeviceSocket::open(ifindex)?);
    let mut all = Vec::new();
    for queue in 0..rings {
        let mut ring = ReceiveRing::open(device, queue)?;
        let memory = ring.take_memory();
        let mapped = memory.and_then(|(memory, at)| NetmapRing::new(memory, at, queue));
        let control = Kernel {
            ring,
            socket: Arc::clone(&socket),
        };
        let mapped = mapped.ok_or(io::ErrorKind::InvalidData)?;
        all.push(NetmapSource::new(mapped, control, queue));
    }
    Ok(all)
}

impl<C: Control> NetmapSource<C> {
    /// The source of a ring, and the system calls that move the ring on.
    pub fn new(ring: NetmapRing, control: C, queue: u16) -> Self {
        Self {
            tail: ring.tail(),
            ring,
            control,
            queue,
            clock: WallClock::new(),
            free: 0,
            is_unfinished: false,
            lent: 0,
            full: 0,
        }
    }

    fn sync(&mut self) -> Result<(), SourceError> {
        self.free = 0;
        self.control
            .sync()
            .map_err(|error| match error.raw_os_error() {
                Some(ENXIO) => SourceError::Gone,
                _ => SourceError::Other(error),
            })?;
        self.note_full();
        Ok(())
    }

    /// Counts if a system call since the last look has filled the ring: that of the source, or
    /// poll(2) of its thread.
    fn note_full(&mut self) {
        let before = mem::replace(&mut self.tail, self.ring.tail());
        self.full += u64::from(self.tail != before && self.ring.is_full());
    }
}

impl<C: Control> Source for NetmapSource<C> {
    fn burst<'s>(&'s mut self, burst: &mut Burst<'s>) -> Result<(), SourceError> {
        self.note_full();
        // A quarter at a time, so that the module has slots while packets come all the time.
        let is_dry = self.is_unfinished || self.ring.waiting() == 0;
        if is_dry || self.free >= self.ring.count() / 4 {
            self.sync()?;
        }
        self.clock.renew();
        let stamp_ns = Some(self.clock.monotonic_of(self.ring.stamp()));
        let (before, count) = (self.lent, &mut self.lent);
        let lent = self.ring.lend(burst.room(), |bytes| {
            *count += 1;
            burst.push(Packet {
                stamp_ns,
                ..Packet::of(bytes)
            });
        });
        self.is_unfinished = self.lent == before;
        lent.map_err(|_| SourceError::Corrupt)
    }

    fn has_filled(&self, quarters: u8) -> bool {
        self.ring.waiting() > self.ring.count() / 4 * u32::from(quarters)
    }

    fn release(&mut self) {
        self.free += self.ring.release();
    }

    fn check(&mut self) -> Result<(), SourceError> {
        self.control.check()
    }

    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        Some(self.control.waits_on())
    }

    fn transmit(&mut self, frame: &[u8]) -> io::Result<bool> {
        self.control.transmit(frame)
    }

    fn queue(&self) -> u16 {
        self.queue
    }

    fn counts(&mut self) -> SourceCounts {
        let dropped = self.ring.too_long();
        SourceCounts {
            received: self.lent + dropped,
            dropped,
            starved: self.full,
            ..SourceCounts::default()
        }
    }
}
