//! The packets for which the cost is shown.

use anyhow::Result;
use fanpcap_gen::{Description, Families, Lengths, Transports};

/// One packet of each kind, with the kind's name.
pub(super) struct Frames(Vec<(&'static str, Vec<u8>)>);

impl Frames {
    /// Creates the packets.
    pub(super) fn new() -> Result<Self> {
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
        Ok(Self(made.into_iter().collect::<Result<_>>()?))
    }

    /// Name and bytes of each packet.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.0.iter().map(|(name, bytes)| (*name, bytes.as_slice()))
    }
}
