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

/// How a cluster selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// What a packet is selected by.
    pub key: Key,
    /// Initial value of the hash. Who knows it can overload a node, so the cluster keeps it secret.
    pub initial: u32,
}
