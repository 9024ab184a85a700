//! How a cluster selects: the same settings at all of its nodes.

/// What a packet is selected by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Key {
    /// PSAMP's BOB hash over what does not change on the way (RFC 5475): each packet by itself.
    #[default]
    Packet,
    /// A symmetric hash of addresses, ports and protocol: whole flows, both directions.
    Flow,
    /// DiCAP's `C mod N = Pi`: the packet's number since the last topology update in the stream.
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

/// How a cluster selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// What a packet is selected by.
    pub key: Key,
    /// Initial value of the hash. Who knows it can overload a node, so the cluster keeps it secret.
    pub initial: u32,
}
