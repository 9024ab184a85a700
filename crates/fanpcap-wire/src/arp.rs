//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp<'a>(&'a [u8; 28]);

impl<'a> Arp<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let packet = bytes.first_chunk::<28>()?;
        // Hardware Ethernet, protocol IPv4, and the lengths of their addresses.
        packet
            .starts_with(&[0, 1, 8, 0, 6, 4])
            .then_some(Self(packet))
    }

    /// 1 for a request, 2 for a reply.
    pub fn operation(self) -> u16 {
        u16::from_be_bytes([self.0[6], self.0[7]])
    }

    /// The address of the sender.
    pub fn sender(self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[14], self.0[15], self.0[16], self.0[17])
    }

    /// The target address: in a request, the address whose owner must answer.
    pub fn target(self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[24], self.0[25], self.0[26], self.0[27])
    }
}
