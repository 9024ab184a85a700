//! The source `packet`: a packet socket with a ring of blocks (TPACKET_V3), or several that share
//! the packets of a device. Works on each Ethernet device, and lets members without privileges
//! capture there.

use crate::burst::{Burst, Packet};
use crate::source::{Source, SourceCounts, SourceError};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::diag::Geometry;
use fanpcap_linux::packet::ring::{self, Mapping, Version};
use fanpcap_linux::packet::{
    self, Address, ETH_P_ALL, FANOUT_FLAG_UNIQUEID, Filter, PacketFanout, Refusal, inject, renew,
};
use fanpcap_linux::wait::{self, ENETDOWN, clock};
use fanpcap_ring::{Blocks, LentFrame, Stamp};
use fanpcap_wire::{Frame, Tag};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How the source captures.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The number of blocks of [`BLOCK_LEN`] bytes.
    pub blocks: u32,
    /// Milliseconds after which the kernel hands over a block that is not full, at least 1.
    pub retire_ms: u32,
    /// Whether the device takes frames for other hosts, too.
    pub is_promiscuous: bool,
}

/// Bytes of a block.
pub const BLOCK_LEN: u32 = 256 << 10;

impl Default for Options {
    fn default() -> Self {
        Self {
            blocks: 32,
            retire_ms: 1,
            is_promiscuous: true,
        }
    }
}

/// A packet socket as a source.
#[derive(Debug)]
pub struct PacketSource {
    socket: OwnedFd,
    blocks: Blocks,
    ifindex: u32,
    /// Whether the source leaves out packets that the host sends: on the loopback device, each of
    /// these packets comes a second time, as received.
    skips_sent: bool,
    queue: u16,
    clock: WallClock,
    counts: SourceCounts,
}

/// Converts the kernel's stamps, which have the time of day, to `CLOCK_MONOTONIC`.
#[derive(Debug)]
pub(crate) struct WallClock {
    /// The time of day less the monotonic clock.
    offset_ns: u64,
    renewed_ns: u64,
}

/// How often the source compares the clocks, and reads the kernel's counters, which have 32 bits.
const RENEWAL_NS: u64 = 100_000_000;

impl WallClock {
    pub(crate) fn new() -> Self {
        Self {
            offset_ns: clock::realtime_offset_ns(),
            renewed_ns: clock::coarse_ns(),
        }
    }

    /// Compares the clocks if this is due. Returns whether it was due.
    pub(crate) fn renew(&mut self) -> bool {
        let now_ns = clock::coarse_ns();
        let is_due = now_ns.saturating_sub(self.renewed_ns) >= RENEWAL_NS;
        if is_due {
            self.offset_ns = clock::realtime_offset_ns();
            self.renewed_ns = now_ns;
        }
        is_due
    }

    fn monotonic_ns(&self, stamp: Stamp) -> u64 {
        let (seconds, nanoseconds) = (stamp.seconds.into(), stamp.nanoseconds);
        self.monotonic_of(Duration::new(seconds, nanoseconds))
    }

    /// The monotonic clock in nanoseconds at this time of day.
    pub(crate) fn monotonic_of(&self, time: Duration) -> u64 {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        time_ns.saturating_sub(self.offset_ns)
    }
}

impl PacketSource {
    /// Captures on the device with this index in the calling thread's network namespace, from now
    /// on.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV`; `ENETDOWN`; `Unsupported` for a device whose frames
    /// have no Ethernet header; `ENOMEM`, and `EINVAL` for options that make no ring.
    pub fn open(ifindex: u32, options: Options) -> io::Result<Self> {
        Self::open_as(0, ifindex, options, None)
    }

    /// Captures as [`PacketSource::open`] does, by several sockets that share the packets: both
    /// directions of a flow come to one of them (`PACKET_FANOUT_HASH`). The device must be up.
    ///
    /// # Errors
    /// As [`PacketSource::open`].
    pub fn open_shared(ifindex: u32, options: Options, queues: u16) -> io::Result<Vec<Self>> {
        // A socket that is not in the group yet would get all packets.
        let rejecting = Filter::reject_all();
        let mut group = PacketFanout {
            id: 0,
            mode: FANOUT_HASH,
            flags: FANOUT_FLAG_UNIQUEID,
        };
        let mut all = Vec::new();
        for queue in 0..queues {
            let source = Self::open_as(queue, ifindex, options, Some(&rejecting))?;
            packet::join(source.socket.as_fd(), group).map_err(refused)?;
            // The kernel has chosen the number.
            group.id = packet::fanout(source.socket.as_fd())?.id;
            group.flags = 0;
            all.push(source);
        }
        for source in &all {
            packet::detach_filter(source.socket.as_fd())?;
        }
        Ok(all)
    }

    fn open_as(
        queue: u16,
        ifindex: u32,
        options: Options,
        filter: Option<&Filter>,
    ) -> io::Result<Self> {
        let socket = packet::open()?;
        if let Some(filter) = filter {
            filter.attach(socket.as_fd())?;
        }
        let geometry = Geometry {
            block_size: BLOCK_LEN,
            block_count: options.blocks,
            frame_size: FRAME_LEN,
            frame_count: options.blocks.saturating_mul(BLOCK_LEN / FRAME_LEN),
            retire: options.retire_ms.max(1),
        };
        ring::make(socket.as_fd(), Version::V3, &geometry)?;
        let mapping = Mapping::of(socket.as_fd(), &geometry)?;
        let blocks = Blocks::new(mapping, BLOCK_LEN as usize, options.blocks as usize);
        let address = Address {
            ifindex,
            protocol: ETH_P_ALL,
        };
        // The kernel knows the hardware type of a bound socket only, so the ring is made before.
        packet::bind(socket.as_fd(), address)?;
        if !ETHERNET.contains(&packet::hardware_type(socket.as_fd())?) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, NO_ETHERNET));
        }
        if options.is_promiscuous {
            renew::make_promiscuous(socket.as_fd(), ifindex)?;
        }
        Ok(Self {
            socket,
            blocks: blocks.ok_or(io::ErrorKind::InvalidInput)?,
            ifindex,
            skips_sent: interface::index("lo") == Some(ifindex),
            queue,
            clock: WallClock::new(),
            counts: SourceCounts::default(),
        })
    }

    /// Adds the kernel's counters, which each read clears.
    fn take_counts(&mut self) {
        match packet::take_statistics(self.socket.as_fd()) {
            Ok(taken) => {
                self.counts.received += u64::from(taken.packets);
                self.counts.dropped += u64::from(taken.drops);
            }
            Err(_) => self.counts.failed += 1,
        }
    }
}

impl Source for PacketSource {
    fn burst<'s>(&'s mut self, burst: &mut Burst<'s>) -> Result<(), SourceError> {
        if !self.blocks.open() {
            return Ok(());
        }
        if self.clock.renew() {
            self.take_counts();
        }
        let (clock, skips_sent) = (&self.clock, self.skips_sent);
        let skipped = &mut self.counts.skipped;
        let lent = self.blocks.lend(burst.room(), |frame| {
            let is_sent = frame.pkttype == PACKET_OUTGOING;
            if is_sent && skips_sent {
                *skipped += 1;
            } else {
                burst.push(of_lent(&frame, clock));
            }
        });
        lent.map_err(|_| SourceError::Corrupt)
    }

    fn has_filled(&self, quarters: u8) -> bool {
        let ahead = self.blocks.count() * usize::from(quarters) / 4;
        self.blocks.is_ready_ahead(ahead)
    }

    fn release(&mut self) {
        if self.blocks.is_spent() {
            self.blocks.release();
        }
    }

    fn check(&mut self) -> Result<(), SourceError> {
        let error = wait::take_error(self.socket.as_fd()).map_err(SourceError::Other)?;
        if packet::is_unbound(self.socket.as_fd()).map_err(SourceError::Other)? {
            return Err(SourceError::Gone);
        }
        // The kernel reports once that the device is down, and not that it is up again.
        if let Ok(false) = interface::is_up(self.socket.as_fd(), self.ifindex) {
            return Err(SourceError::Down);
        }
        match error.filter(|it| it.raw_os_error() != Some(ENETDOWN)) {
            None => Ok(()),
            Some(error) => Err(SourceError::Other(error)),
        }
    }

    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn transmit(&mut self, frame: &[u8]) -> io::Result<bool> {
        inject::try_send(self.socket.as_fd(), frame)
    }

    /// The socket's number. A packet socket gets packets of all receive queues of the device.
    fn queue(&self) -> u16 {
        self.queue
    }

    fn counts(&mut self) -> SourceCounts {
        self.take_counts();
        self.counts
    }
}

fn refused(refusal: Refusal) -> io::Error {
    match refusal {
        Refusal::Conflict(error) | Refusal::Other(error) => error,
        Refusal::Joined | Refusal::Full => io::Error::other("PACKET_FANOUT"),
    }
}

fn of_lent<'a>(frame: &LentFrame<'a>, clock: &WallClock) -> Packet<'a> {
    Packet {
        frame: Frame {
            bytes: frame.bytes,
            tag: frame.vlan.map(|vlan| Tag {
                tpid: vlan.tpid,
                tci: vlan.tci,
            }),
        },
        wire_len: frame.wire_len,
        hash: 0,
        stamp_ns: Some(clock.monotonic_ns(frame.stamp)),
        is_sent: frame.pkttype == PACKET_OUTGOING,
    }
}

/// TPACKET_V3 uses as many bytes as a packet needs, but a block must be a multiple of this.
const FRAME_LEN: u32 = 2048;

const NO_ETHERNET: &str = "frames of this device have no Ethernet header";

/// The hardware types (linux/if_arp.h) of devices whose frames have an Ethernet header:
/// `ARPHRD_ETHER` and `ARPHRD_LOOPBACK`.
const ETHERNET: [u16; 2] = [1, 772];

/// linux/if_packet.h.
const PACKET_OUTGOING: u8 = 4;
const FANOUT_HASH: u8 = 0;
