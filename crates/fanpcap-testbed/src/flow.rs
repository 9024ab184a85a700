//! The key of a flow, which is the same for both directions of a conversation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};

/// The transports that a key distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The key of a conversation, which is the same for both directions. For packets of other protocols
/// than TCP and UDP, and for fragments after the first, the ports are 0 and the transport is
/// unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    transport: Option<Transport>,
    ends: [SocketAddr; 2],
}

impl FlowKey {
    /// The key of a conversation between two ends. The order of the ends does not matter.
    pub fn new(transport: Option<Transport>, one: SocketAddr, other: SocketAddr) -> Self {
        Self {
            transport,
            ends: [one.min(other), one.max(other)],
        }
    }

    /// The key of an Ethernet frame, which may be cut short; `None` if the frame isn't IP.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
        let (source, destination) = addresses(&packet)?;
        let (transport, from, to) = match packet.transport {
            Some(TransportSlice::Tcp(tcp)) => (
                Some(Transport::Tcp),
                tcp.source_port(),
                tcp.destination_port(),
            ),
            Some(TransportSlice::Udp(udp)) => (
                Some(Transport::Udp),
                udp.source_port(),
                udp.destination_port(),
            ),
            _ => (None, 0, 0),
        };
        Some(Self::new(
            transport,
            SocketAddr::new(source, from),
            SocketAddr::new(destination, to),
        ))
    }

    /// The transport, if it is known.
    pub fn transport(&self) -> Option<Transport> {
        self.transport
    }

    /// Whether one end has this port.
    pub fn has_port(&self, port: u16) -> bool {
        self.ends.iter().any(|end| end.port() == port)
    }

    /// The two hosts, whatever the ports.
    pub fn hosts(&self) -> [IpAddr; 2] {
        self.ends.map(|end| end.ip())
    }
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, other] = self.ends;
        match self.transport {
            Some(transport) => write!(f, "{transport:?} {one} - {other}"),
            None => write!(f, "IP {} - {}", one.ip(), other.ip()),
        }
    }
}

fn addresses(packet: &LaxSlicedPacket<'_>) -> Option<(IpAddr, IpAddr)> {
    match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            Some((
                Ipv4Addr::from(header.source()).into(),
                Ipv4Addr::from(header.destination()).into(),
            ))
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            Some((
                Ipv6Addr::from(header.source()).into(),
                Ipv6Addr::from(header.destination()).into(),
            ))
        }
        LaxNetSlice::Arp(_) => None,
    }
}
