//! Runs a steering program's pcap filters on the frame with its VLAN tag among the bytes.
//!
//! These filters load no metadata. Shifts work as in the kernel, because the kernel runs the same
//! filters.

use crate::ir::Filter;
use fanpcap_bpf::{Packet, Shifts};
use fanpcap_wire::Frame;

impl Filter {
    /// Whether the filter accepts the packet.
    pub fn accepts(&self, packet: &super::Packet<'_>) -> bool {
        let frame = Tagged::of(&packet.frame, packet.length);
        fanpcap_bpf::run(&self.code, &frame, Shifts::Modulo) != 0
    }
}

/// A frame into which the tag beside it is inserted, at the place where the tag was on the wire.
struct Tagged<'f> {
    addresses: &'f [u8],
    tag: [u8; 4],
    tag_len: usize,
    behind: &'f [u8],
    length: u32,
}

impl<'f> Tagged<'f> {
    fn of(frame: &Frame<'f>, length: u32) -> Self {
        // The tag belongs after the addresses. A frame shorter than the Ethernet header has no tag.
        let tag = frame.tag.filter(|_| frame.bytes.len() >= 14);
        let (addresses, behind) = frame
            .bytes
            .split_at_checked(12)
            .unwrap_or((frame.bytes, &[]));
        let tag_bytes = tag.map_or([0; 4], |tag| {
            let ([a, b], [c, d]) = (tag.tpid.to_be_bytes(), tag.tci.to_be_bytes());
            [a, b, c, d]
        });
        Self {
            addresses,
            tag: tag_bytes,
            tag_len: if tag.is_some() { 4 } else { 0 },
            behind,
            length: length.saturating_add(if tag.is_some() { 4 } else { 0 }),
        }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        let byte = match at.checked_sub(self.addresses.len()) {
            None => self.addresses.get(at),
            Some(at) if at < self.tag_len => self.tag.get(at),
            Some(at) => self.behind.get(at - self.tag_len),
        };
        byte.copied()
    }
}

impl Packet for Tagged<'_> {
    fn wire_len(&self) -> u32 {
        self.length
    }

    fn bytes<const N: usize>(&self, at: u32) -> Option<[u8; N]> {
        let at = usize::try_from(at).ok()?;
        let mut bytes = [0; N];
        for (to, at) in bytes.iter_mut().zip(at..at.checked_add(N)?) {
            *to = self.byte(at)?;
        }
        Some(bytes)
    }
}
