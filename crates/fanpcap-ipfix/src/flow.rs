//! Exports a packet as a flow of one packet, for collectors that read only flows.

use std::net::IpAddr;
use std::time::Duration;

use fanpcap_wire::{Frame, Ip, Layers};

use crate::record::Packet;
use crate::template::{FIRST_ID, Field, Template};

pub(crate) const FLOW_4: Template = Template {
    id: FIRST_ID + 1,
    scope: 0,
    fields: &fields((8, 4), (12, 4)),
};

pub(crate) const FLOW_6: Template = Template {
    id: FIRST_ID + 2,
    scope: 0,
    fields: &fields((27, 16), (28, 16)),
};

const fn fields(source: Field, destination: Field) -> [Field; 11] {
    [
        source,
        destination,
        (7, 2),   // sourceTransportPort
        (11, 2),  // destinationTransportPort
        (4, 1),   // protocolIdentifier
        (6, 1),   // tcpControlBits
        (5, 1),   // ipClassOfService
        (1, 8),   // octetDeltaCount
        (2, 8),   // packetDeltaCount
        (152, 8), // flowStartMilliseconds
        (153, 8), // flowEndMilliseconds
    ]
}

/// A packet as a flow of its own.
#[derive(Debug)]
pub(crate) struct Flow<'a> {
    ip: Ip<'a>,
    octets: u32,
    time: Duration,
}

impl<'a> Flow<'a> {
    /// The flow described by the packet's headers; `None` if the packet is not an IP packet.
    pub(crate) fn of(packet: &Packet<'a>) -> Option<Self> {
        let bytes = packet.frame;
        let ip = *Layers::of(&Frame { bytes, tag: None }).ip()?;
        // A packet that an offload merged from several may have length 0 in its IP header.
        let octets = match ip.total_len() {
            0 => packet.wire_len,
            len => len,
        };
        Some(Self {
            ip,
            octets,
            time: packet.time,
        })
    }

    pub(crate) fn template(&self) -> &'static Template {
        match self.ip.source() {
            IpAddr::V4(_) => &FLOW_4,
            IpAddr::V6(_) => &FLOW_6,
        }
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        for address in [self.ip.source(), self.ip.destination()] {
            match address {
                IpAddr::V4(address) => bytes.extend(address.octets()),
                IpAddr::V6(address) => bytes.extend(address.octets()),
            }
        }
        let ports = self.ip.ports();
        let (source, destination) = ports.map_or((0, 0), |ports| (ports.source, ports.destination));
        bytes.extend(source.to_be_bytes());
        bytes.extend(destination.to_be_bytes());
        let flags = self.ip.tcp().map_or(0, |tcp| tcp.flags());
        bytes.extend([self.ip.protocol, flags, self.ip.tos()]);
        let milliseconds = u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX);
        for number in [self.octets.into(), 1, milliseconds, milliseconds] {
            bytes.extend(u64::to_be_bytes(number));
        }
    }
}
