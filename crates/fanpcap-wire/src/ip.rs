//! An IP packet: its header, its fragmentation, and the bytes after the header.

use std::net::IpAddr;

use crate::number::{ICMP, ICMPV6, SCTP, TCP, UDP};
use crate::transport::{Icmp, Ports, Sctp, Tcp, Udp};
use crate::tunnel::{self, Gre};
use crate::{Extensions, Ipv4, Ipv6, Layers};

/// The IP header of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header<'a> {
    /// The IPv4 header.
    V4(Ipv4<'a>),
    /// The IPv6 header.
    V6(Ipv6<'a>),
}

/// An IPv4 or IPv6 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ip<'a> {
    /// The header.
    pub header: Header<'a>,
    /// The upper protocol; in IPv6, the last next-header number that the walk read.
    pub protocol: u8,
    /// IPv4's flags and offset. In IPv6, the same value made from the fragment header; 0 without a
    /// fragment header.
    pub flags_and_offset: u16,
    /// The datagram's identification. In IPv6, only a fragment header has one.
    pub id: Option<u32>,
    transport: Option<&'a [u8]>,
    payload: &'a [u8],
    extensions: Option<Extensions<'a>>,
}

const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

impl<'a> Ip<'a> {
    pub(crate) fn v4(bytes: &'a [u8]) -> Option<Self> {
        let header = Ipv4::of(bytes)?;
        let flags_and_offset = header.flags_and_offset();
        let is_later = flags_and_offset & OFFSET != 0;
        Some(Self {
            header: Header::V4(header),
            protocol: header.protocol(),
            flags_and_offset,
            id: Some(header.id().into()),
            transport: bytes.get(header.len()..).filter(|_| !is_later),
            payload: bytes.get(header.len()..).unwrap_or_default(),
            extensions: None,
        })
    }

    pub(crate) fn v6(bytes: &'a [u8]) -> Option<Self> {
        let (header, behind) = Ipv6::of(bytes)?;
        let extensions = Extensions::of(header.next_header(), behind);
        let mut walk = extensions;
        let fragment = walk
            .by_ref()
            .filter_map(|extension| extension.fragment())
            .last();
        let (protocol, transport) = walk.end();
        Some(Self {
            header: Header::V6(header),
            protocol,
            flags_and_offset: fragment.map_or(0, |(field, _)| field),
            id: fragment.map(|(_, id)| id),
            transport,
            payload: behind,
            extensions: Some(extensions),
        })
    }

    /// The IPv4 header.
    pub fn ipv4(&self) -> Option<Ipv4<'a>> {
        match self.header {
            Header::V4(header) => Some(header),
            Header::V6(_) => None,
        }
    }

    /// The IPv6 header.
    pub fn ipv6(&self) -> Option<Ipv6<'a>> {
        match self.header {
            Header::V4(_) => None,
            Header::V6(header) => Some(header),
        }
    }

    /// IPv6's extension headers, as far as the walk reads them.
    pub fn extensions(&self) -> impl Iterator<Item = crate::Extension<'a>> + use<'a> {
        self.extensions.into_iter().flatten()
    }

    /// Source address.
    pub fn source(&self) -> IpAddr {
        match self.header {
            Header::V4(header) => header.source().into(),
            Header::V6(header) => header.source().into(),
        }
    }

    /// Destination address.
    pub fn destination(&self) -> IpAddr {
        match self.header {
            Header::V4(header) => header.destination().into(),
            Header::V6(header) => header.destination().into(),
        }
    }

    /// Type of service, or traffic class.
    pub fn tos(&self) -> u8 {
        match self.header {
            Header::V4(header) => header.tos(),
            Header::V6(header) => header.traffic_class(),
        }
    }

    /// Time to live, or hop limit.
    pub fn ttl(&self) -> u8 {
        match self.header {
            Header::V4(header) => header.ttl(),
            Header::V6(header) => header.hop_limit(),
        }
    }

    /// Total length in bytes, according to the header.
    pub fn total_len(&self) -> u32 {
        match self.header {
            Header::V4(header) => header.total_len().into(),
            Header::V6(header) => 40 + u32::from(header.payload_len()),
        }
    }

    /// Whether the packet is a fragment. A complete datagram with a fragment header (RFC 6946) is
    /// no fragment.
    pub fn is_fragment(&self) -> bool {
        self.flags_and_offset & (MORE | OFFSET) != 0
    }

    /// Whether the packet is a datagram's first fragment.
    pub fn is_first_fragment(&self) -> bool {
        self.flags_and_offset & (MORE | OFFSET) == MORE
    }

    /// Whether the packet is a later fragment.
    pub fn is_later_fragment(&self) -> bool {
        self.flags_and_offset & OFFSET != 0
    }

    /// The captured bytes from the transport header on; `None` in a later fragment.
    pub fn transport(&self) -> Option<&'a [u8]> {
        self.transport
    }

    /// The captured bytes after IPv4's header and options, or after IPv6's first 40 bytes.
    /// Fragments have a payload, too.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    fn transport_of(&self, protocol: u8) -> Option<&'a [u8]> {
        self.transport.filter(|_| self.protocol == protocol)
    }

    /// Ports of TCP, UDP, DCCP, SCTP or UDP-Lite.
    pub fn ports(&self) -> Option<Ports> {
        Ports::of(self.protocol, self.transport?)
    }

    /// The TCP header.
    pub fn tcp(&self) -> Option<Tcp<'a>> {
        Tcp::of(self.transport_of(TCP)?)
    }

    /// The UDP header.
    pub fn udp(&self) -> Option<Udp<'a>> {
        Udp::of(self.transport_of(UDP)?)
    }

    /// The SCTP header.
    pub fn sctp(&self) -> Option<Sctp<'a>> {
        Sctp::of(self.transport_of(SCTP)?)
    }

    /// ICMP in IPv4, ICMPv6 in IPv6.
    pub fn icmp(&self) -> Option<Icmp<'a>> {
        match self.header {
            Header::V4(_) => Icmp::of(self.transport_of(ICMP)?),
            Header::V6(_) => Icmp::of(self.transport_of(ICMPV6)?),
        }
    }

    /// The GRE header.
    pub fn gre(&self) -> Option<Gre<'a>> {
        Gre::of(self.transport_of(crate::number::GRE)?)
    }

    /// The packet that an ICMP error quotes, if its header was captured. Both packets have the same
    /// IP version.
    pub fn quoted(&self) -> Option<Ip<'a>> {
        let icmp = self.icmp()?;
        match self.header {
            Header::V4(_) if matches!(icmp.kind, 3 | 4 | 5 | 11 | 12) => Ip::v4(icmp.quote()?),
            Header::V6(_) if matches!(icmp.kind, 1..=4) => Ip::v6(icmp.quote()?),
            Header::V4(_) | Header::V6(_) => None,
        }
    }

    /// The layers of the packet that this one carries. These layers always include an IP packet.
    pub(crate) fn inner(&self, cut: usize) -> Option<Layers<'a>> {
        tunnel::inner(self, cut).filter(|layers| layers.ip().is_some())
    }
}
