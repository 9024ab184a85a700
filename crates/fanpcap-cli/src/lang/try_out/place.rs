//! A packet's flow and direction.

use fanpcap_wire::{FlowKey, Ip};

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
        let direction = usize::from(!flow.is_upward(ip));
        Self { flow, direction }
    }
}
