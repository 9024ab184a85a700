//! Chooses the packets of a ring that the application gets, and converts them.

use crate::call::Packet;
use fanpcap_ring::{Corrupt, Frame};
use std::sync::atomic::{AtomicI8, AtomicU8, Ordering};

/// The wanted packets by their direction (pcap_setdirection(3PCAP)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// All packets.
    InOut,
    /// Packets that the host receives.
    In,
    /// Packets that the host sends.
    Out,
}

/// Options that the application set before it activated the handle.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most bytes of a packet that the application gets.
    pub snaplen: u32,
    /// Whether time stamps are in nanoseconds. Otherwise they are in microseconds.
    pub nanoseconds: bool,
    /// Whether reads return without waiting for packets.
    pub nonblocking: bool,
    /// The wanted packets.
    pub direction: Direction,
    /// The offset in the packet, in bytes, at which the reader re-inserts a VLAN tag. `None`: it
    /// re-inserts none.
    pub tag_at: Option<u8>,
}

/// `PACKET_OUTGOING`.
pub(crate) const OUTGOING: u8 = 4;

const NO_TAG: i8 = -1;

/// The application's options. Other threads may change the fields with atomic types during a read.
#[derive(Debug)]
pub(crate) struct Wanted {
    direction: AtomicU8,
    /// The offset at which the reader re-inserts a VLAN tag, or [`NO_TAG`].
    tag_at: AtomicI8,
    snaplen: u32,
    nanoseconds: bool,
    /// The index of the loopback interface, on which the kernel delivers each packet twice.
    loopback: Option<u32>,
}

impl Wanted {
    pub(crate) fn new(options: &Options, loopback: Option<u32>) -> Self {
        let wanted = Self {
            direction: AtomicU8::new(0),
            tag_at: AtomicI8::new(NO_TAG),
            snaplen: options.snaplen,
            nanoseconds: options.nanoseconds,
            loopback,
        };
        wanted.set_direction(options.direction);
        wanted.set_tag_at(options.tag_at);
        wanted
    }

    pub(crate) fn set_direction(&self, direction: Direction) {
        let number = match direction {
            Direction::InOut => 0,
            Direction::In => 1,
            Direction::Out => 2,
        };
        self.direction.store(number, Ordering::Relaxed);
    }

    pub(crate) fn set_tag_at(&self, at: Option<u8>) {
        let at = at.and_then(|at| i8::try_from(at).ok()).unwrap_or(NO_TAG);
        self.tag_at.store(at, Ordering::Relaxed);
    }

    /// Converts `frame` to `packet`. Returns false when the application does not want the frame.
    /// The packet's bytes stay valid until the frame goes back to the kernel.
    #[inline]
    pub(crate) fn accept(
        &self,
        mut frame: Frame<'_>,
        packet: &mut Packet,
    ) -> Result<bool, Corrupt> {
        if !self.wants(&frame) {
            return Ok(false);
        }
        if frame.vlan().is_some() {
            if let Ok(at) = usize::try_from(self.tag_at.load(Ordering::Relaxed)) {
                frame.reinsert_tag(at)?;
            }
        }
        let stamp = frame.stamp();
        packet.seconds = stamp.seconds.into();
        packet.fraction = match self.nanoseconds {
            true => stamp.nanoseconds.into(),
            false => (stamp.nanoseconds / 1000).into(),
        };
        packet.caplen = frame.captured().min(self.snaplen);
        packet.len = frame.wire_len();
        packet.data = frame.data().as_ptr();
        Ok(true)
    }

    #[inline]
    fn wants(&self, frame: &Frame<'_>) -> bool {
        let link = frame.link();
        let direction = self.direction.load(Ordering::Relaxed);
        if link.pkttype == OUTGOING {
            direction != 1 && Some(link.ifindex) != self.loopback
        } else {
            direction != 2
        }
    }
}
