//! The key of a flow. Both directions of a flow have the same key.

use std::net::IpAddr;

use crate::Ip;

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port; 0 if there is no port.
    pub port: u16,
}

/// The flow of a packet. The key is the same in both directions, because it holds the smaller end
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    low: Endpoint,
    high: Endpoint,
    protocol: u8,
}

impl FlowKey {
    /// The flow between two ends.
    pub fn new(one: Endpoint, other: Endpoint, protocol: u8) -> Self {
        Self {
            low: one.min(other),
            high: one.max(other),
            protocol,
        }
    }

    /// The flow of a packet. An ICMP error belongs to the flow of the packet that it quotes.
    pub fn of(ip: &Ip<'_>) -> Self {
        let quoted = ip.quoted();
        let ip = quoted.as_ref().unwrap_or(ip);
        let destination = Endpoint {
            address: ip.destination(),
            port: ip.ports().map_or(0, |ports| ports.destination),
        };
        Self::new(source(ip), destination, ip.protocol)
    }

    /// Whether a packet of this flow goes from the smaller end to the larger one.
    pub fn is_upward(&self, ip: &Ip<'_>) -> bool {
        self.low == source(ip.quoted().as_ref().unwrap_or(ip))
    }

    /// Both ends, the smaller one first.
    pub fn ends(&self) -> [Endpoint; 2] {
        [self.low, self.high]
    }

    /// The upper protocol.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }
}

fn source(ip: &Ip<'_>) -> Endpoint {
    Endpoint {
        address: ip.source(),
        port: ip.ports().map_or(0, |ports| ports.source),
    }
}
