//! Chooses the packets of a ring that the application gets, and converts them.

use crate::call::Packet;
use fanpcap_ring::{Corrupt, Frame};
use std::sync::atomic::{AtomicU8, Ordering};

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

/// No tag is re-inserted. An offset in a frame's link header is smaller.
pub(crate) const NO_TAG: u8 = u8::MAX;

/// The application's options. Other threads may change the fields with atomic types during a read.
pub(crate) struct Wanted {
    pub(crate) direction: AtomicU8,
    /// The offset at which the reader re-inserts a VLAN tag, or [`NO_TAG`].
    pub(crate) tag_at: AtomicU8,
    snaplen: u32,
    nanoseconds: bool,
    /// The index of the loopback interface, on which the kernel delivers each packet twice.
    loopback: Option<u32>,
}

impl Wanted {
    pub(crate) fn new(options: &Options, loopback: Option<u32>) -> Self {
        Self {
            direction: AtomicU8::new(options.direction as u8),
            tag_at: AtomicU8::new(options.tag_at.unwrap_or(NO_TAG)),
            snaplen: options.snaplen,
            nanoseconds: options.nanoseconds,
            loopback,
        }
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
            let at = self.tag_at.load(Ordering::Relaxed);
            if at != NO_TAG {
                frame.reinsert_tag(at.into())?;
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
            direction != Direction::In as u8 && Some(link.ifindex) != self.loopback
        } else {
            direction != Direction::Out as u8
        }
    }
}
