//! A packet's flow and direction.

use fanpcap_wire::{Endpoint, FlowKey, Ip};

/// A flow, and one of its directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowSide {
    pub(super) flow: FlowKey,
    pub(super) direction: usize,
}

impl FlowSide {
    /// An ICMP error belongs to the flow and direction of the packet that it quotes.
    pub(super) fn of(ip: &Ip<'_>) -> Self {
        let flow = FlowKey::of(ip);
        let quoted = ip.quoted();
        let ip = quoted.as_ref().unwrap_or(ip);
        let source = Endpoint {
            address: ip.source(),
            port: ip.ports().map_or(0, |ports| ports.source),
        };
        let direction = usize::from(source != flow.ends()[0]);
        Self { flow, direction }
    }
}
