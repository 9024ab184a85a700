//! The source `dpdk`: a receive queue of a device of DPDK, which a plugin polls. The device's
//! driver is in this process, so the kernel sees none of the packets.

use crate::burst::{Burst, Packet};
use crate::source::{Source, SourceCounts, SourceError};
use fanpcap_dpdk::{
    Bound, Bus, DeviceClock, DeviceName, Eal, Facts, Lent, OpenError, PortCounts, PortOptions,
    PortState, Queue, Sender,
};
use fanpcap_linux::interface;
use fanpcap_linux::wait::clock;
use fanpcap_wire::{Frame, Tag};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A receive queue of a device of DPDK as a source.
#[derive(Debug)]
pub struct DpdkSource {
    queue: Queue,
    number: u16,
    /// The packets that the queue can keep.
    descriptors: u32,
    /// Packets that were lent.
    lent: u64,
    /// The clock of a device that stamps packets.
    clock: Option<Clock>,
    /// What the device is on, if DPDK's drivers do not say that it was removed.
    below: Option<Below>,
    sender: DeviceSender,
    counts: PortCounts,
    failed: u64,
}

/// Sends frames on a device of DPDK. Clones send by turns.
#[derive(Clone, Debug)]
pub struct DeviceSender(Arc<Mutex<Sender>>);

impl DeviceSender {
    /// Sends a frame. Returns false if the device has no room for the frame now.
    ///
    /// # Errors
    /// The device can't send, or can't send this frame.
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender.send(frame)
    }
}

/// A device that is open.
#[derive(Debug)]
pub struct Opened {
    /// A source for each receive queue, in the order of the queues' numbers.
    pub sources: Vec<DpdkSource>,
    /// Sends frames.
    pub sender: DeviceSender,
    /// What the device has.
    pub facts: Facts,
}

/// The packets that a queue keeps while its thread does something else, if the device can.
const DESCRIPTORS: u16 = 4096;

/// Buffers of a queue: for all descriptors, for a burst, and for threads' caches. DPDK's pools use
/// memory best if this is a power of two less one.
const BUFFERS: u32 = 8191;

/// Buffers that the queue's thread keeps. It uses these again and again, so they are in the CPU's
/// cache.
const CACHE: u32 = 256;

/// Jumbo frames of 9 KiB.
const MTU: u32 = 9216;

/// MiB of memory that a queue takes, if its driver wants buffers for whole frames.
const QUEUE_MIB: u32 = 36;

/// MiB of memory for DPDK itself, and for frames to send.
const OF_DPDK_MIB: u32 = 64;

/// MiB of memory that DPDK takes for so many queues.
pub fn memory_mib(queues: u32) -> u32 {
    queues.saturating_mul(QUEUE_MIB).saturating_add(OF_DPDK_MIB)
}

/// Takes the packets of a device, from now on, by so many receive queues.
///
/// # Errors
/// See [`OpenError`].
pub fn open(eal: Eal, name: &DeviceName, queues: u16) -> Result<Opened, OpenError> {
    open_with(eal, name, options(queues, CACHE))
}

/// For measurements: opens a device as [`open`] does, but so that the queue's thread keeps no
/// buffers. So all buffers are used in turn, and not only those that the thread has last given
/// back. See [`DpdkSource::fill`].
///
/// # Errors
/// See [`OpenError`].
pub fn open_to_fill(eal: Eal, name: &DeviceName, queues: u16) -> Result<Opened, OpenError> {
    open_with(eal, name, options(queues, 0))
}

fn options(queues: u16, cache: u32) -> PortOptions {
    PortOptions {
        queues,
        descriptors: DESCRIPTORS,
        buffers: BUFFERS,
        cache,
        mtu: MTU,
    }
}

/// Takes the packets of a device as [`open`] does, with other options.
///
/// # Errors
/// See [`OpenError`].
pub fn open_with(eal: Eal, name: &DeviceName, options: PortOptions) -> Result<Opened, OpenError> {
    let opened = eal.open(name, options)?;
    let facts = opened.facts;
    let sender = DeviceSender(Arc::new(Mutex::new(opened.sender)));
    let sources = (0..).zip(opened.queues).map(|(number, queue)| DpdkSource {
        queue,
        number,
        descriptors: facts.descriptors,
        lent: 0,
        clock: facts.has_stamps.then(Clock::default),
        below: Below::of(name),
        sender: sender.clone(),
        counts: PortCounts::default(),
        failed: 0,
    });
    Ok(Opened {
        sources: sources.collect(),
        sender,
        facts,
    })
}

impl DpdkSource {
    /// For measurements: writes frames into the queue's buffers.
    ///
    /// # Errors
    /// See [`Queue::fill`].
    pub fn fill(&mut self, write: impl FnMut(&mut [u8])) -> io::Result<()> {
        self.queue.fill(write)
    }
}

/// Compares the device's clock with the kernel's from time to time.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    of_device: DeviceClock,
    renewed_ns: u64,
}

const RENEWAL_NS: u64 = 100_000_000;

impl Clock {
    fn renew(&mut self, queue: &Queue) {
        let now_ns = clock::coarse_ns();
        if now_ns.saturating_sub(self.renewed_ns) < RENEWAL_NS {
            return;
        }
        self.renewed_ns = now_ns;
        if let Ok(ticks) = queue.clock() {
            self.of_device.read(ticks, clock::monotonic_ns());
        }
    }
}

/// Where sysfs is mounted.
const SYS: &str = "/sys";

/// What a device is on. Most of DPDK's drivers do not say that it was removed.
#[derive(Clone, Debug)]
enum Below {
    /// The index of a network interface under a virtual device. It may get another name.
    Interface(u32),
    /// A device on the PCI bus, with its driver.
    Pci(Bound),
}

impl Below {
    fn of(name: &DeviceName) -> Option<Self> {
        match name.bus() {
            Bus::Pci => Bound::new(Path::new(SYS), name.name()).map(Self::Pci),
            Bus::Vdev => interface::index(name.interface()?).map(Self::Interface),
        }
    }

    fn is_gone(&self) -> bool {
        match self {
            Self::Interface(index) => matches!(interface::find_name(*index), Ok(None)),
            Self::Pci(bound) => bound.is_gone(),
        }
    }
}

/// linux/if_ether.h: `ETH_P_8021Q`. DPDK does not say which one the device has removed.
const TPID: u16 = 0x8100;

#[inline]
fn of_lent<'a>(packet: &Lent<'a>, clock: Option<&Clock>) -> Packet<'a> {
    let stamp = packet.stamp.zip(clock);
    Packet {
        frame: Frame {
            bytes: packet.bytes,
            tag: packet.tci.map(|tci| Tag { tpid: TPID, tci }),
        },
        wire_len: packet.wire_len,
        hash: packet.hash,
        stamp_ns: stamp.and_then(|(stamp, clock)| clock.of_device.monotonic_ns(stamp)),
        is_sent: false,
    }
}

impl Source for DpdkSource {
    fn burst<'s>(&'s mut self, burst: &mut Burst<'s>) -> Result<(), SourceError> {
        if let Some(clock) = &mut self.clock {
            clock.renew(&self.queue);
        }
        let (clock, lent) = (self.clock.as_ref(), &mut self.lent);
        self.queue.burst(burst.room(), |packet| {
            *lent += 1;
            burst.push(of_lent(&packet, clock));
        });
        Ok(())
    }

    fn has_filled(&self, quarters: u8) -> bool {
        let limit = self.descriptors / 4 * u32::from(quarters);
        self.queue.waiting().is_some_and(|waiting| waiting > limit)
    }

    fn release(&mut self) {
        self.queue.release();
    }

    fn check(&mut self) -> Result<(), SourceError> {
        if self.below.as_ref().is_some_and(Below::is_gone) {
            return Err(SourceError::Gone);
        }
        // The state is that of the device.
        match self.number {
            0 => match self.queue.state() {
                PortState::Up => Ok(()),
                PortState::Down => Err(SourceError::Down),
                PortState::Gone => Err(SourceError::Gone),
            },
            _ => Ok(()),
        }
    }

    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        self.queue.descriptor()
    }

    fn begin_wait(&mut self) -> bool {
        self.queue.set_interrupt(true);
        true
    }

    fn end_wait(&mut self) {
        self.queue.set_interrupt(false);
    }

    fn transmit(&mut self, frame: &[u8]) -> io::Result<bool> {
        self.sender.send(frame)
    }

    fn queue(&self) -> u16 {
        self.number
    }

    /// The first queue has what the device has missed: DPDK counts it for the whole device.
    fn counts(&mut self) -> SourceCounts {
        if self.number == 0 {
            match self.queue.counts() {
                Ok(counts) => self.counts = counts,
                Err(_) => self.failed += 1,
            }
        }
        SourceCounts {
            received: self.lent + self.counts.missed,
            dropped: self.counts.missed,
            skipped: 0,
            starved: self.counts.no_buffers,
            faulty: self.counts.errors,
            failed: self.failed,
        }
    }
}
