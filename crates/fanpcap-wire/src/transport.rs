//! Transport headers, step 7 of the walk (see `lib.rs`): TCP, UDP with RTP, SCTP, ICMP.

use crate::number::{DCCP, SCTP, TCP, UDP, UDP_LITE};

/// Both ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The source port.
    pub source: u16,
    /// The destination port.
    pub destination: u16,
}

impl Ports {
    pub(crate) fn of(protocol: u8, transport: &[u8]) -> Option<Self> {
        let &[a, b, c, d] = transport.first_chunk()?;
        matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE).then_some(Self {
            source: u16::from_be_bytes([a, b]),
            destination: u16::from_be_bytes([c, d]),
        })
    }
}

/// The TCP header (RFC 9293) without its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp<'a>(&'a [u8; 20]);

impl<'a> Tcp<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        bytes.first_chunk().map(Self)
    }

    /// Source port.
    pub fn source(self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }

    /// Destination port.
    pub fn destination(self) -> u16 {
        u16::from_be_bytes([self.0[2], self.0[3]])
    }

    /// Number of the segment's first byte.
    pub fn sequence(self) -> u32 {
        u32::from_be_bytes([self.0[4], self.0[5], self.0[6], self.0[7]])
    }

    /// The header's length in bytes, according to the header.
    pub fn header_len(self) -> u8 {
        (self.0[12] >> 4) * 4
    }

    /// Flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16 ...
    pub fn flags(self) -> u8 {
        self.0[13]
    }
}

/// The UDP header (RFC 768), and the captured bytes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp<'a> {
    header: &'a [u8; 8],
    payload: &'a [u8],
}

impl<'a> Udp<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_first_chunk()?;
        Some(Self { header, payload })
    }

    /// Source port.
    pub fn source(self) -> u16 {
        u16::from_be_bytes([self.header[0], self.header[1]])
    }

    /// Destination port.
    pub fn destination(self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Length of header and payload, according to the header.
    pub fn datagram_len(self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// The captured bytes after the header.
    pub fn payload(self) -> &'a [u8] {
        self.payload
    }

    /// The RTP header. A guess: the payload is taken for RTP if it has version 2 and both ports are
    /// even and at least 1024.
    pub fn rtp(self) -> Option<Rtp<'a>> {
        self.media(0).map(Rtp)
    }

    /// The RTCP header. A guess: the payload is taken for RTCP if it has version 2 and type 200 to
    /// 204, and both ports are odd and at least 1024.
    pub fn rtcp(self) -> Option<Rtcp<'a>> {
        let header = self.media(1)?;
        matches!(header[1], 200..=204).then_some(Rtcp(header))
    }

    fn media<const LEN: usize>(self, odd: u16) -> Option<&'a [u8; LEN]> {
        let header = self.payload.first_chunk()?;
        let fits = |port: u16| port >= 1024 && port % 2 == odd;
        let is_media = header[0] >> 6 == 2 && fits(self.source()) && fits(self.destination());
        is_media.then_some(header)
    }
}

/// The part of the RTP header that every packet has (RFC 3550 section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtp<'a>(&'a [u8; 12]);

impl Rtp<'_> {
    /// The payload's type.
    pub fn payload_type(self) -> u8 {
        self.0[1] & 0x7f
    }
}

/// The part of the RTCP header that every packet has (RFC 3550 section 6.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtcp<'a>(&'a [u8; 4]);

impl Rtcp<'_> {
    /// The packet's type: 200 sender report, 201 receiver report, 202 source description, 203
    /// goodbye, 204 application-defined.
    pub fn packet_type(self) -> u8 {
        self.0[1]
    }
}

/// SCTP's common header (RFC 9260).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sctp<'a>(&'a [u8; 12]);

impl<'a> Sctp<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        bytes.first_chunk().map(Self)
    }

    /// Verification tag.
    pub fn verification_tag(self) -> u32 {
        u32::from_be_bytes([self.0[4], self.0[5], self.0[6], self.0[7]])
    }
}

/// Type and code of ICMP (RFC 792) or ICMPv6 (RFC 4443).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp<'a> {
    bytes: &'a [u8],
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
}

impl<'a> Icmp<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let &[kind, code] = bytes.first_chunk()?;
        Some(Self { bytes, kind, code })
    }

    /// The captured bytes after the first 8 bytes. In an ICMP error, the quoted packet begins
    /// there.
    pub(crate) fn quote(self) -> Option<&'a [u8]> {
        self.bytes.get(8..)
    }
}
