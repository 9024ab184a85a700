//! Flows: the addresses and ports of each flow number.

use std::net::IpAddr;

use crate::description::{Description, Families, Transports};
use crate::prefix::Prefix;
use crate::random::scatter;

/// One of a description's flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Source address and port of the flow's frames.
    pub(crate) source: (IpAddr, u16),
    /// Destination address and port.
    pub(crate) destination: (IpAddr, u16),
    /// Whether the transport is TCP. Otherwise it is UDP.
    pub(crate) tcp: bool,
}

/// The lowest source port, and the number of source ports.
const FIRST_PORT: u64 = 1024;
pub(crate) const PORTS: u64 = 65536 - FIRST_PORT;

impl Flow {
    /// Flow `number` of a description. No two flows have the same source, if the check of the
    /// description has found enough addresses.
    pub(crate) fn of(description: &Description, number: u64) -> Self {
        let v4 = match description.families {
            Families::V4 => true,
            Families::V6 => false,
            Families::Both => number % 2 == 0,
        };
        let tcp = match description.transports {
            Transports::Udp => false,
            Transports::Tcp => true,
            Transports::Both => number / 2 % 2 == 1,
        };
        let (sources, destinations) = description.prefixes(v4);
        let seed = scatter(description.seed);
        let (turn, place) = (number / sources.hosts(), number % sources.hosts());
        let port = (scatter(seed ^ place) + turn) % PORTS + FIRST_PORT;
        Self {
            source: (
                sources.host(place ^ seed),
                u16::try_from(port).unwrap_or(u16::MAX),
            ),
            destination: (
                destinations.host(scatter(!seed ^ number)),
                description.destination_port,
            ),
            tcp,
        }
    }

    /// The same flow seen from its other end.
    pub(crate) fn turned(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            ..self
        }
    }
}

/// The number of flows that can have different sources within `sources`.
pub(crate) fn room(sources: &Prefix) -> u64 {
    sources.hosts().saturating_mul(PORTS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_flows_are_the_same_not_even_from_few_addresses() {
        for sources in ["10.1.0.0/16", "10.1.0.0/30", "10.1.2.3"] {
            let description = Description {
                sources4: sources.parse().unwrap(),
                ..Description::default()
            };
            let sources: BTreeSet<_> = (0..50_000)
                .map(|number| Flow::of(&description, number).source)
                .collect();
            assert_eq!(sources.len(), 50_000);
        }
    }

    #[test]
    fn mixes_are_halves() {
        let description = Description {
            families: Families::Both,
            transports: Transports::Both,
            ..Description::default()
        };
        let flows: Vec<_> = (0..400).map(|n| Flow::of(&description, n)).collect();
        assert_eq!(flows.iter().filter(|flow| flow.tcp).count(), 200);
        assert_eq!(
            flows.iter().filter(|flow| flow.source.0.is_ipv4()).count(),
            200
        );
        let both = |flow: &&Flow| flow.tcp && flow.source.0.is_ipv4();
        assert_eq!(flows.iter().filter(both).count(), 100);
    }
}
