//! An IP packet: its header, fragmentation, and what is behind it.

use std::net::IpAddr;

use crate::number::{ICMP, ICMPV6, SCTP, TCP, UDP};
use crate::transport::{Icmp, Ports, Sctp, Tcp, Udp};
use crate::tunnel::{self, Gre};
use crate::{Extensions, Ipv4, Ipv6, Layers};

/// The header of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header<'a> {
    /// IPv4's.
    V4(Ipv4<'a>),
    /// IPv6's.
    V6(Ipv6<'a>),
}

/// A packet of IPv4 or IPv6.
#[derive(Clone, Copy, Debug)]
pub struct Ip<'a> {
    /// The header.
    pub header: Header<'a>,
    /// The upper protocol: of IPv6 the last number read.
    pub protocol: u8,
    /// IPv4's flags and offset; of IPv6 the same made of its fragment header, 0 without one.
    pub flags_and_offset: u16,
    /// The datagram's identification; of IPv6 that of its fragment header.
    pub id: Option<u32>,
    /// What was captured behind the network's headers.
    transport: Option<&'a [u8]>,
    payload: &'a [u8],
    /// The extension headers of IPv6.
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

    /// IPv4's header.
    pub fn ipv4(&self) -> Option<Ipv4<'a>> {
        match self.header {
            Header::V4(header) => Some(header),
            Header::V6(_) => None,
        }
    }

    /// IPv6's header.
    pub fn ipv6(&self) -> Option<Ipv6<'a>> {
        match self.header {
            Header::V4(_) => None,
            Header::V6(header) => Some(header),
        }
    }

    /// IPv6's extension headers, as far as the walk goes.
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

    /// Type of service, traffic class.
    pub fn tos(&self) -> u8 {
        match self.header {
            Header::V4(header) => header.tos(),
            Header::V6(header) => header.traffic_class(),
        }
    }

    /// Time to live, hop limit.
    pub fn ttl(&self) -> u8 {
        match self.header {
            Header::V4(header) => header.ttl(),
            Header::V6(header) => header.hop_limit(),
        }
    }

    /// Total length in bytes, as the header says it.
    pub fn total_len(&self) -> u32 {
        match self.header {
            Header::V4(header) => header.total_len().into(),
            Header::V6(header) => 40 + u32::from(header.payload_len()),
        }
    }

    /// Whether it is a part of a datagram. A fragment header around a whole one (RFC 6946) makes
    /// none.
    pub fn is_fragment(&self) -> bool {
        self.flags_and_offset & (MORE | OFFSET) != 0
    }

    /// Whether it is the part that begins a datagram.
    pub fn is_first_fragment(&self) -> bool {
        self.flags_and_offset & (MORE | OFFSET) == MORE
    }

    /// Whether it is a part that does not.
    pub fn is_later_fragment(&self) -> bool {
        self.flags_and_offset & OFFSET != 0
    }

    /// What was captured from the transport header on; none in a later fragment.
    pub fn transport(&self) -> Option<&'a [u8]> {
        self.transport
    }

    /// What was captured behind IPv4's header with its options, or behind the 40 bytes of IPv6's:
    /// of a fragment too.
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

    /// TCP.
    pub fn tcp(&self) -> Option<Tcp<'a>> {
        Tcp::of(self.transport_of(TCP)?)
    }

    /// UDP.
    pub fn udp(&self) -> Option<Udp<'a>> {
        Udp::of(self.transport_of(UDP)?)
    }

    /// SCTP.
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

    /// GRE.
    pub fn gre(&self) -> Option<Gre<'a>> {
        Gre::of(self.transport_of(crate::number::GRE)?)
    }

    /// The packet that an ICMP error is about, as far as it quotes it: it is of the same family.
    pub fn quoted(&self) -> Option<Ip<'a>> {
        let icmp = self.icmp()?;
        match self.header {
            Header::V4(_) if matches!(icmp.kind, 3 | 4 | 5 | 11 | 12) => Ip::v4(icmp.quote()?),
            Header::V6(_) if matches!(icmp.kind, 1..=4) => Ip::v6(icmp.quote()?),
            Header::V4(_) | Header::V6(_) => None,
        }
    }

    /// The layers of the packet that this one carries: always with an IP packet.
    pub(crate) fn inner(&self, cut: usize) -> Option<Layers<'a>> {
        tunnel::inner(self, cut).filter(|layers| layers.ip().is_some())
    }
}
