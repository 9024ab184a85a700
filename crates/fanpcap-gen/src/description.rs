//! Descriptions: what the frames of a pool are like.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::prefix::Prefix;

/// What frames are like. The same description makes the same frames, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Decides addresses, ports and the order of lengths.
    pub seed: u64,
    /// Number of flows; frames take them in turn.
    pub flows: u32,
    /// Lengths of frames. A frame whose headers take more is as long as these.
    pub lengths: Lengths,
    /// IPv4, IPv6, or one half of the flows each.
    pub families: Families,
    /// UDP, TCP, or one half of the flows each.
    pub transports: Transports,
    /// After each round of all flows a round of answers: addresses, ports and MAC addresses
    /// swapped.
    pub answers: bool,
    /// VLAN numbers, the outer one first: none, one (802.1Q), or two (802.1ad).
    pub vlans: Vec<u16>,
    /// Frames are inside of VXLAN (RFC 7348) with this network identifier.
    pub vxlan: Option<u32>,
    /// Every so many datagrams one comes as three fragments, each as long as a frame may be but for
    /// the last, which has half as much.
    pub fragments: Option<u32>,
    /// The MAC address that frames come from.
    pub source_mac: [u8; 6],
    /// The MAC address that they go to.
    pub destination_mac: [u8; 6],
    /// Addresses that flows of IPv4 come from.
    pub sources4: Prefix,
    /// Addresses that flows of IPv4 go to.
    pub destinations4: Prefix,
    /// Addresses that flows of IPv6 come from.
    pub sources6: Prefix,
    /// Addresses that flows of IPv6 go to.
    pub destinations6: Prefix,
    /// The payload begins with the frame's number, four bytes in network order, and its complement;
    /// not in frames without room for it, nor in later fragments.
    pub stamp: bool,
}

/// Lengths of frames in bytes, headers of all layers included, without the frame check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// All the same.
    Fixed(u16),
    /// Any from the first to the second, all equally likely.
    Uniform(u16, u16),
    /// 60, 590 and 1514 bytes (with check sequence 64, 594 and 1518), exactly 7:4:1 in every
    /// twelve.
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
            sources4: Prefix::v4(Ipv4Addr::new(10, 1, 0, 0), 16),
            destinations4: Prefix::v4(Ipv4Addr::new(10, 2, 0, 0), 16),
            sources6: Prefix::v6(Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0), 112),
            destinations6: Prefix::v6(Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 0), 112),
            stamp: true,
        }
    }
}

impl Description {
    /// Where flows of a family come from and go to.
    pub(crate) fn prefixes(&self, v4: bool) -> (&Prefix, &Prefix) {
        if v4 {
            (&self.sources4, &self.destinations4)
        } else {
            (&self.sources6, &self.destinations6)
        }
    }
}
