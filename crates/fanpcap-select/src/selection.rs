//! How a cluster selects packets. All nodes of the cluster have the same selection.

/// The key by which packets are selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Key {
    /// PSAMP's BOB hash (RFC 5475) of parts that routers do not change. Selects single packets.
    #[default]
    Packet,
    /// A symmetric hash of addresses, ports and protocol. Selects whole flows, in both directions.
    Flow,
    /// DiCAP's `C mod N = Pi`. `C` counts packets; a topology update (a frame in the mirrored
    /// stream) sets it to 0.
    RoundRobin,
    /// DiCAP's `hash(IP id) mod N = Pi`.
    Identification,
}

impl Key {
    /// All keys, each with its name in cluster.conf and wherever a key is shown.
    pub const NAMES: [(Self, &'static str); 4] = [
        (Self::Packet, "packet"),
        (Self::Flow, "flow"),
        (Self::RoundRobin, "round_robin"),
        (Self::Identification, "identification"),
    ];

    /// The key's name.
    pub fn name(self) -> &'static str {
        let mut all = Self::NAMES.iter();
        all.find(|(key, _)| *key == self)
            .map_or("", |(_, name)| name)
    }

    /// The key with this name.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::NAMES.iter();
        all.find(|(_, one)| *one == name).map(|(key, _)| *key)
    }
}

/// How a cluster selects packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// The key by which packets are selected.
    pub key: Key,
    /// The initial value of the hash: a secret. Somebody who knows it can overload a node.
    pub initial: u32,
}
