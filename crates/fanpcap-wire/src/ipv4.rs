//! The IPv4 header (RFC 791), step 5 of the walk.

use std::net::Ipv4Addr;

/// The first 20 bytes of an IPv4 header of version 4 and header length 20 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4<'a>(&'a [u8; 20]);

impl<'a> Ipv4<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let header = Self(bytes.first_chunk()?);
        (header.0[0] >> 4 == 4 && header.len() >= 20).then_some(header)
    }

    /// The header's length with its options, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "it is at least 20")]
    pub fn len(self) -> usize {
        usize::from(self.0[0] & 0x0f) * 4
    }

    /// Type of service.
    pub fn tos(self) -> u8 {
        self.0[1]
    }

    /// Total length.
    pub fn total_len(self) -> u16 {
        u16::from_be_bytes([self.0[2], self.0[3]])
    }

    /// Identification.
    pub fn id(self) -> u16 {
        u16::from_be_bytes([self.0[4], self.0[5]])
    }

    /// Three flags, and the offset of 13 bits in units of 8 bytes.
    pub fn flags_and_offset(self) -> u16 {
        u16::from_be_bytes([self.0[6], self.0[7]])
    }

    /// Time to live.
    pub fn ttl(self) -> u8 {
        self.0[8]
    }

    /// The protocol of the payload.
    pub fn protocol(self) -> u8 {
        self.0[9]
    }

    /// Source address.
    pub fn source(self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[12], self.0[13], self.0[14], self.0[15])
    }

    /// Destination address.
    pub fn destination(self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[16], self.0[17], self.0[18], self.0[19])
    }
}
