//! Packets that a source lends.

use fanpcap_ring::prefetch_packet;
use fanpcap_wire::{Frame, Tag};

/// The most packets of a burst.
pub const BURST: usize = 64;

/// A packet in the memory of a source.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet<'a> {
    /// The frame's bytes, and the tag beside them.
    pub frame: Frame<'a>,
    /// Bytes of the frame on the wire, without the tag beside it.
    pub wire_len: u32,
    /// The hash from the device; 0 if there is no hash.
    pub hash: u32,
    /// The time of arrival in nanoseconds of `CLOCK_MONOTONIC`; `None` if the source does not have
    /// it.
    pub stamp_ns: Option<u64>,
    /// Whether the host sends the packet.
    pub is_sent: bool,
}

impl<'a> Packet<'a> {
    /// A packet that was received whole, without metadata.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self {
            frame: Frame { bytes, tag: None },
            wire_len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            ..Self::default()
        }
    }

    /// The tag that the kernel or the device has removed from the frame.
    pub fn tag(&self) -> Option<Tag> {
        self.frame.tag
    }
}

/// Up to [`BURST`] packets, in the order in which they came.
#[derive(Debug)]
pub struct Burst<'a> {
    packets: [Packet<'a>; BURST],
    len: usize,
    most: usize,
}

impl<'a> Burst<'a> {
    /// An empty burst.
    pub fn new() -> Self {
        Self::of(BURST)
    }

    /// An empty burst for at most so many packets, which are [`BURST`] at most.
    pub fn of(most: usize) -> Self {
        Self {
            packets: [Packet::default(); BURST],
            len: 0,
            most: most.min(BURST),
        }
    }

    /// Adds a packet. Returns false if the burst is full. Another CPU has written the packet, so
    /// its first cache line is on the way while the source lends the next ones.
    #[inline]
    pub fn push(&mut self, packet: Packet<'a>) -> bool {
        prefetch_packet(packet.frame.bytes);
        let place = self.packets[..self.most].get_mut(self.len);
        let has_room = place.is_some();
        if let Some(place) = place {
            *place = packet;
            self.len += 1;
        }
        has_room
    }

    /// How many packets fit into the burst.
    pub fn room(&self) -> usize {
        self.most - self.len
    }

    /// The packets.
    #[inline]
    pub fn packets(&self) -> &[Packet<'a>] {
        &self.packets[..self.len]
    }
}

impl Default for Burst<'_> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_has_at_most_its_packets() {
        let mut burst = Burst::new();
        assert!(burst.packets().is_empty() && burst.room() == BURST);
        let bytes = [7; 60];
        for _ in 0..BURST {
            assert!(burst.push(Packet::of(&bytes)));
        }
        assert!(!burst.push(Packet::of(&bytes)));
        assert_eq!((burst.packets().len(), burst.room()), (BURST, 0));
        let mut burst = Burst::of(2);
        let pushed = [(); 3].map(|()| burst.push(Packet::of(&bytes)));
        assert_eq!((pushed, burst.room()), ([true, true, false], 0));
        assert_eq!(Burst::of(BURST + 1).room(), BURST);
    }
}
