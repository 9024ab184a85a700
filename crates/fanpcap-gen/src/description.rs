//! Descriptions of a pool's frames.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::prefix::Prefix;

/// Description of frames. Equal descriptions make equal frames, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Seed of addresses, ports and the order of lengths.
    pub seed: u64,
    /// Number of flows; the frames belong to the flows in turn.
    pub flows: u32,
    /// Lengths of frames. A frame is at least as long as its headers.
    pub lengths: Lengths,
    /// The flows' IP version: IPv4, IPv6, or half of the flows each.
    pub families: Families,
    /// The flows' transport protocol: UDP, TCP, or half of the flows each.
    pub transports: Transports,
    /// Whether a round of answers follows each round of all flows. Answers have addresses, ports
    /// and MAC addresses swapped.
    pub answers: bool,
    /// VLAN numbers, the outer one first: none, one (802.1Q), or two (802.1ad).
    pub vlans: Vec<u16>,
    /// The network identifier of the VXLAN (RFC 7348) that encapsulates the frames; `None`: no
    /// VXLAN.
    pub vxlan: Option<u32>,
    /// One in this many datagrams comes as three fragments. The first two fragments have a frame's
    /// length, and the last has half that length.
    pub fragments: Option<u32>,
    /// Source MAC address.
    pub source_mac: [u8; 6],
    /// Destination MAC address.
    pub destination_mac: [u8; 6],
    /// Source addresses of IPv4 flows.
    pub sources4: Prefix,
    /// Destination addresses of IPv4 flows.
    pub destinations4: Prefix,
    /// Source addresses of IPv6 flows.
    pub sources6: Prefix,
    /// Destination addresses of IPv6 flows.
    pub destinations6: Prefix,
    /// Destination port of all flows. By default it is 9, the port of the discard service: no
    /// analyser decodes the payload as a known protocol.
    pub destination_port: u16,
    /// Whether the payload begins with a stamp: the frame's number, four bytes in network order,
    /// and the complement of the number. Frames without room for the stamp, and fragments other
    /// than the first, have no stamp.
    pub stamp: bool,
}

/// Lengths of frames in bytes, headers of all layers included, without the frame check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// All frames have this length.
    Fixed(u16),
    /// Any length from the first to the second. All lengths are equally likely.
    Uniform(u16, u16),
    /// Of every twelve frames, seven have 60 bytes, four have 590 and one has 1514 (with check
    /// sequence 64, 594 and 1518).
    Imix,
}

/// Internet protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Every other flow is IPv6.
    Both,
}

/// Transport protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transports {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// Every other pair of flows is TCP.
    Both,
}

impl Default for Description {
    fn default() -> Self {
        Self {
            seed: 1,
            flows: 64,
            lengths: Lengths::Fixed(60),
            families: Families::V4,
            transports: Transports::Udp,
            answers: false,
            vlans: Vec::new(),
            vxlan: None,
            fragments: None,
            source_mac: [0x02, 0, 0, 0, 0, 0x0a],
            destination_mac: [0x02, 0, 0, 0, 0, 0x99],
            sources4: Prefix::new(Ipv4Addr::new(10, 1, 0, 0), 16),
            destinations4: Prefix::new(Ipv4Addr::new(10, 2, 0, 0), 16),
            sources6: Prefix::new(Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0), 112),
            destinations6: Prefix::new(Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 0), 112),
            destination_port: 9,
            stamp: true,
        }
    }
}

impl Description {
    /// Source and destination addresses of an IP version.
    pub(crate) fn prefixes(&self, v4: bool) -> (&Prefix, &Prefix) {
        if v4 {
            (&self.sources4, &self.destinations4)
        } else {
            (&self.sources6, &self.destinations6)
        }
    }
}
