//! The tree of a steering program: its meaning, without names, types and sugar. All back ends take
//! it.
//!
//! A packet starts with the outcome "copy to every member of the default class" and with state 0. A
//! function goes on, maybe with another outcome, or drops. Nothing of a sequence runs after a drop.
//! A later steering function overrides an earlier one.

mod nodes;

pub use nodes::{Node, NodeMut};

use fanpcap_bpf::Classic;
use std::net::IpAddr;

/// Version of the meaning of trees. Increment it with every change that makes a compiled steering
/// program select, count or steer differently. Members of different builds then detect that they
/// disagree, although they have the same tree.
pub const MEANING: u32 = 1;

/// A program that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// What is done with each packet.
    pub main: Function,
    /// The sets that [`Predicate::Member`] names by their place here, each sorted and without
    /// doubles.
    pub sets: Vec<Vec<u128>>,
    /// The pcap filters that [`Predicate::Pcap`] names by their place here.
    pub filters: Vec<Filter>,
}

/// A pcap expression, compiled for Ethernet by the system's libpcap without a device, so that it
/// reads the frame's bytes only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The expression.
    pub text: String,
    /// Classic BPF (linux/filter.h), which takes the frame with its VLAN tag in the bytes.
    pub code: Vec<Classic>,
}

/// What is done with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Function {
    /// Goes on.
    Pass,
    /// Drops.
    Drop,
    /// One after the other, until one drops.
    Sequence(Vec<Function>),
    /// `filter p` is `If(p, Pass, Drop)`.
    If(Box<Predicate>, Box<Function>, Box<Function>),
    /// The first that does not drop. An alternative that drops leaves outcome and state as they
    /// were before it; its counters stay.
    First(Vec<Function>),
    /// Drops where the function passes; where it drops, goes on with the outcome and the state from
    /// before.
    Inverse(Box<Function>),
    /// Runs the function on the packet that this packet carries, or on this packet if it carries
    /// none that [`fanpcap_wire`] finds. A packet within the carried one is not looked at. Of a
    /// packet in fragments only the first fragment shows the carried packet. If that first fragment
    /// is steered by its flow, the others follow it.
    Inner(Box<Function>),
    /// Says which member gets it; drops what has no such thing to be steered by.
    Steer(Steer),
    /// To all members of all classes but 63. Not in a group of the kernel's.
    Broadcast,
    /// To members of this class only, 1 to 63. Not in a group of the kernel's.
    Classify(u8),
    /// To the host as well (false), or to the host and nobody else (true): the xdp engine only.
    Host(bool),
    /// Marks the packet. Not in a group of the kernel's.
    Mark(u32),
    /// Adds to one of [`COUNTERS`] counters.
    Count(u8, i64),
    /// Sets the packet's state.
    SetState(u32),
    /// Goes on with the first `keep` of each `of` packets that come here, counted on each CPU, and
    /// drops the others. 0 < of, keep <= of.
    Sample {
        /// How many.
        keep: u32,
        /// Of how many.
        of: u32,
        /// Which of the program's samplers this is, from 0.
        index: u8,
    },
}

/// Counters of a program.
pub const COUNTERS: usize = 64;
/// Fragmented datagrams that are known at a time.
pub const FRAGMENTS_MAX: u32 = 16_384;
/// How long fragments of a datagram go together, in nanoseconds: 2 s.
pub const FRAGMENT_AGE_NS: u64 = 2_000_000_000;

/// A question about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// Always, or never.
    Constant(bool),
    /// The contrary.
    Not(Box<Predicate>),
    /// Both.
    And(Box<Predicate>, Box<Predicate>),
    /// One or both.
    Or(Box<Predicate>, Box<Predicate>),
    /// One and not both.
    Xor(Box<Predicate>, Box<Predicate>),
    /// The property is there and compares so, as unsigned numbers.
    Compare(Property, Comparison, u64),
    /// The property is there and is in the set of this place in [`Tree::sets`].
    Member(Property, usize),
    /// The packet has it: the header, or the property.
    Has(Header),
    /// An address, of either side or of the one given, lies in the net. IPv4 nets hold IPv4
    /// addresses only.
    Address(Side, Net),
    /// An address of the family, cut to its first `bits`, is in the set (an IPv4 address as its
    /// 32-bit number, an IPv6 one as its 128-bit number).
    AddressIn {
        /// Whose address.
        side: Side,
        /// Whether it is the packets of IPv6 that can match.
        ipv6: bool,
        /// How much of the address counts.
        bits: u8,
        /// In [`Tree::sets`].
        set: usize,
    },
    /// A port of TCP, UDP, UDP-Lite, SCTP or DCCP. A later fragment has none.
    Port(Side, u16),
    /// The filter of this place in [`Tree::filters`] takes the frame. Inside of `inner` it sees the
    /// whole frame all the same.
    Pcap(usize),
    /// The hash of the key's fields, folded into [`crate::hash::SHARE`], is `index` modulo `of`;
    /// false where the packet lacks one of the fields.
    Share {
        /// Which part.
        index: u32,
        /// Of how many.
        of: u32,
        /// By what; see [`Key`].
        key: Key,
    },
    /// UDP with RTP, version 2, the 12 bytes of its header there, and its ports even and at least
    /// 1024 (RFC 3550 section 5.1).
    Rtp,
    /// UDP with RTCP, version 2, 4 bytes there: ports odd and at least 1024, type 200 to 204 (RFC
    /// 3550 section 6).
    Rtcp,
}

/// Whose address or port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// One of the two.
    Either,
    /// The source's.
    Source,
    /// The destination's.
    Destination,
}

/// How a property compares with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `.<`
    Less,
    /// `.<=`
    LessEqual,
    /// `.==`
    Equal,
    /// `./=`
    NotEqual,
    /// `.>`
    Greater,
    /// `.>=`
    GreaterEqual,
    /// One of the number's bits, or more, is set.
    AnyBit,
    /// All of the number's bits are set.
    AllBits,
}

/// An address and how much of it counts; the rest is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// The net's first address.
    pub address: IpAddr,
    /// 0 to 32, 0 to 128.
    pub bits: u8,
}

/// What a packet has or has not. "IP" is that of the packet itself, behind VLAN tags, MPLS labels
/// and PPPoE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Ethernet: both addresses and the type.
    Link,
    /// A VLAN tag, beside the frame or in it.
    Tag,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Either.
    Ip,
    /// A fragment, also the first one.
    Fragment,
    /// A fragment that begins its datagram.
    FirstFragment,
    /// One that does not.
    LaterFragment,
    /// A packet inside, which `inner` would go on with.
    Inner,
    /// The frame's destination is the broadcast address.
    LinkBroadcast,
    /// The frame's destination is a group address, broadcast included.
    LinkMulticast,
    /// IPv4's destination is 255.255.255.255.
    IpBroadcast,
    /// IPv4's destination is in 224.0.0.0/4, IPv6's in ff00::/8.
    IpMulticast,
}

/// A number that a packet may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Property {
    /// The Ethernet type behind all VLAN tags (of 802.3 frames the length).
    EtherType,
    /// VLAN id of the outermost tag.
    VlanId,
    /// The upper protocol: IPv4's field; of IPv6 the one behind the extension headers.
    Protocol,
    /// IPv4's type of service, IPv6's traffic class.
    Tos,
    /// IPv4's total length; 40 + IPv6's payload length.
    IpLength,
    /// IPv4's identification; the one of IPv6's fragment header.
    IpId,
    /// IPv4's flags and offset as in its header; of IPv6 the same made of its fragment header
    /// (0x2000 for "more", offset / 8), 0 without one.
    IpFragment,
    /// Time to live, hop limit.
    Ttl,
    /// TCP's, with its 20 bytes there (as of each TCP property).
    TcpSource,
    /// As above.
    TcpDestination,
    /// Bytes.
    TcpHeaderLength,
    /// UDP's, with its 8 bytes there (as of each UDP property).
    UdpSource,
    /// As above.
    UdpDestination,
    /// As in the header.
    UdpLength,
    /// ICMP's in IPv4, ICMPv6's in IPv6; 2 bytes are there, and it is no later fragment.
    IcmpType,
    /// As above.
    IcmpCode,
    /// What the kernel's packet mark is; absent in XDP.
    Mark,
    /// The state that the program has set.
    State,
    /// The receiving queue, from 0, where the driver told it.
    Queue,
}

/// Which member: by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steer {
    /// By the flow, the same in both directions: addresses, and ports where `ports` says so. See
    /// `hash.rs`. An ICMP error goes with the flow that it quotes. Later fragments go with their
    /// datagram, of which the last decision is remembered. Not IP: drops.
    Flow(Flow),
    /// By both Ethernet addresses, the same in both directions. Broadcast: to all (a kernel group:
    /// by the addresses).
    Link,
    /// By the outermost tag's VLAN id. Untagged: drops.
    Vlan,
    /// In turn, counted on each CPU.
    RoundRobin,
    /// At random.
    Random,
    /// By the CPU that runs the program.
    Cpu,
    /// By the hash that the NIC or the kernel gave it; 0 or none: as [`Flow::WHOLE`], and where
    /// that drops 0.
    Rss,
    /// The number as hash: member n modulo members.
    To(u32),
    /// By 1 to 4 bytes at this offset of the frame's bytes (a tag that the kernel keeps beside the
    /// frame is not in them). Not there: drops.
    Field(Field),
    /// By two of them, the same when they change places. One not there: drops.
    Fields(Field, Field),
    /// By the address of the local side. Both or none local: by both (a kernel group), to both
    /// (hub); none: drops.
    LocalIp(Net),
    /// By the local side's network: `net` holds the local ones, of which `bits` count. As above.
    LocalNet(Net, u8),
    /// By the Ethernet address that is not the gateway's; neither is: by both (kernel), to both
    /// (hub).
    LocalLink([u8; 6]),
    /// By the fields of a key. One missing: drops.
    Key(Key),
    /// Two members, by each Ethernet address alone. Not in a group of the kernel's.
    DoubleLink,
    /// Two members, by each IP address alone. Not in a group of the kernel's.
    DoubleIp,
    /// Two members, by each field alone. Not in a group of the kernel's.
    DoubleField(Field, Field),
    /// RTP and RTCP by addresses and half their ports, so that a session's two streams go together.
    /// Others: drops.
    Media,
    /// GTP-U (UDP port 2152) by the user's addresses, symmetric: the inner packet's. GTP-C (2123):
    /// to all (a kernel group: by its addresses). Others: drops.
    Gtp,
}

/// How [`Steer::Flow`] tells flows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// By the ports as well.
    pub ports: Ports,
    /// By the upper protocol as well. (Then an ICMP error counts as the protocol that it quotes.)
    pub protocol: bool,
    /// By the outermost VLAN id as well, 0 for none.
    pub vlan: bool,
}

/// Whose ports tell flows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Nobody's.
    None,
    /// Those of TCP; other protocols by address.
    Tcp,
    /// Those of all protocols that have them.
    All,
}

impl Flow {
    /// `steer_flow`: addresses and ports.
    pub const WHOLE: Flow = Flow {
        ports: Ports::All,
        protocol: false,
        vlan: false,
    };
    /// `steer_p2p`: addresses.
    pub const ADDRESSES: Flow = Flow {
        ports: Ports::None,
        ..Flow::WHOLE
    };
}

/// Bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// From the frame's first byte.
    pub offset: u16,
    /// 1 to 4.
    pub len: u8,
}

/// Fields of a key, hashed in the order of the constants, each as it is in the header: source and
/// destination are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub u16);

impl Key {
    /// Ethernet type behind the tags.
    pub const ETHER_TYPE: Key = Key(1);
    /// The frame's source.
    pub const LINK_SOURCE: Key = Key(1 << 1);
    /// The frame's destination.
    pub const LINK_DESTINATION: Key = Key(1 << 2);
    /// The packet's source.
    pub const IP_SOURCE: Key = Key(1 << 3);
    /// The packet's destination.
    pub const IP_DESTINATION: Key = Key(1 << 4);
    /// The upper protocol.
    pub const PROTOCOL: Key = Key(1 << 5);
    /// Two bits of the type of service.
    pub const ECN: Key = Key(1 << 6);
    /// The other six.
    pub const DSCP: Key = Key(1 << 7);
    /// Of protocols that have ports. Later fragments lack it.
    pub const SOURCE_PORT: Key = Key(1 << 8);
    /// As above.
    pub const DESTINATION_PORT: Key = Key(1 << 9);
    /// As [`Property::IcmpType`].
    pub const ICMP_TYPE: Key = Key(1 << 10);
    /// As [`Property::IcmpCode`].
    pub const ICMP_CODE: Key = Key(1 << 11);
    /// VLAN id of the outermost tag.
    pub const VLAN: Key = Key(1 << 12);

    /// All fields of both.
    pub const fn and(self, other: Key) -> Key {
        Key(self.0 | other.0)
    }

    /// Whether it has all fields of the other.
    pub const fn has(self, other: Key) -> bool {
        self.0 & other.0 == other.0
    }
}
