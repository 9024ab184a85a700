//! The packets for which the cost is shown.

use anyhow::Result;
use fanpcap_gen::{Description, Families, Lengths, Transports};

/// One packet of each kind, with the kind's name.
pub(super) type Frames = Vec<(&'static str, Vec<u8>)>;

/// Creates the packets.
pub(super) fn frames() -> Result<Frames> {
    let plain = Description {
        flows: 1,
        lengths: Lengths::Fixed(128),
        transports: Transports::Tcp,
        ..Description::default()
    };
    let kinds = [
        ("TCP over IPv4", plain.clone()),
        (
            "UDP over IPv6",
            Description {
                families: Families::V6,
                transports: Transports::Udp,
                ..plain.clone()
            },
        ),
        (
            "TCP in VXLAN",
            Description {
                vxlan: Some(1),
                ..plain
            },
        ),
    ];
    let made = kinds.map(|(name, description)| Ok((name, description.pool()?.frame(0))));
    made.into_iter().collect()
}
