//! Lists of all headers and properties of a packet. Do not change the order of these lists: tests
//! choose from them at random with a fixed seed, and would make other test data from another order.

use super::{Header, Property};

impl Header {
    /// All headers.
    pub const ALL: [Self; 13] = [
        Self::Ip,
        Self::Link,
        Self::Tag,
        Self::Ipv4,
        Self::Ipv6,
        Self::Fragment,
        Self::FirstFragment,
        Self::LaterFragment,
        Self::Inner,
        Self::LinkBroadcast,
        Self::LinkMulticast,
        Self::IpBroadcast,
        Self::IpMulticast,
    ];
}

impl Property {
    /// All properties.
    pub const ALL: [Self; 19] = [
        Self::EtherType,
        Self::VlanId,
        Self::Protocol,
        Self::Tos,
        Self::IpLength,
        Self::IpId,
        Self::IpFragment,
        Self::Ttl,
        Self::TcpSource,
        Self::TcpDestination,
        Self::TcpHeaderLength,
        Self::UdpSource,
        Self::UdpDestination,
        Self::UdpLength,
        Self::IcmpType,
        Self::IcmpCode,
        Self::Mark,
        Self::State,
        Self::Queue,
    ];
}
