//! The flow of a frame, and a flow in words.

use fanpcap_wire::{Endpoint, FlowKey, Frame, Layers};

/// The layers of a frame that still has its VLAN tags.
pub(crate) fn layers(frame: &[u8]) -> Layers<'_> {
    Layers::of(&Frame {
        bytes: frame,
        tag: None,
    })
}

/// The flow of a frame with these layers, and whether the packet goes from the flow's lower end to
/// its higher end.
pub(crate) fn flow_of(layers: &Layers<'_>) -> Option<(FlowKey, bool)> {
    let inner = layers.inner();
    let ip = inner.as_ref().and_then(Layers::ip).or(layers.ip())?;
    // A fragment or an ICMP error does not name its flow in its header.
    if ip.is_fragment() || ip.quoted().is_some() {
        return None;
    }
    let key = FlowKey::of(ip);
    Some((key, key.is_upward(ip)))
}

/// A flow in words.
pub(crate) fn shown(key: &FlowKey) -> String {
    let end = |end: Endpoint| match (end.address.is_ipv6(), end.port) {
        (_, 0) => end.address.to_string(),
        (true, port) => format!("[{}]:{port}", end.address),
        (false, port) => format!("{}:{port}", end.address),
    };
    let protocol = match key.protocol() {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmpv6".to_owned(),
        132 => "sctp".to_owned(),
        other => format!("protocol {other}"),
    };
    let [low, high] = key.ends();
    format!("{protocol} {} - {}", end(low), end(high))
}
