//! The tree of a steering program: its meaning, without names, types and sugar. All back ends take
//! it.
//!
//! A packet starts with the outcome "copy to every member of the default class" and with state 0. A
//! function goes on, maybe with another outcome, or drops. Nothing of a sequence runs after a drop.
//! A later steering function overrides an earlier one.

mod all;
mod nodes;

pub use nodes::{Node, NodeMut};

use fanpcap_bpf::Classic;
use std::net::IpAddr;

/// Version of the meaning of trees. Increment it with every change that makes a compiled steering
/// program select, count or steer differently. Members of different builds then detect that they
/// disagree, although they have the same tree.
///
/// 1: the kernel takes the group's hashes modulo the number of sockets. 2: the group has a table.
/// 3: what no type announces is checked, more tags and tunnels are read, and fields of the frame
/// are counted without its outermost tag.
pub const MEANING: u32 = 3;

/// A checked steering program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The function that every packet runs through.
    pub main: Function,
    /// The sets, by the index in [`Predicate::Member`]; each sorted and without duplicates.
    pub sets: Vec<Vec<u128>>,
    /// The pcap filters, by the index in [`Predicate::Pcap`].
    pub filters: Vec<Filter>,
}

/// A pcap expression, compiled for Ethernet by the system's libpcap without a device, so that it
/// reads only the frame's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The expression.
    pub text: String,
    /// Classic BPF (linux/filter.h); it expects the frame with its VLAN tag in the bytes.
    pub code: Vec<Classic>,
}

/// An operation on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Function {
    /// Does nothing.
    Pass,
    /// Drops the packet.
    Drop,
    /// Runs functions one after the other, until one drops.
    Sequence(Vec<Function>),
    /// `filter p` is `If(p, Pass, Drop)`.
    If(Box<Predicate>, Box<Function>, Box<Function>),
    /// Runs alternatives until one does not drop. An alternative that drops leaves outcome and
    /// state as they were before it; its counters stay.
    First(Vec<Function>),
    /// Drops if the function passes. If the function drops, passes with the outcome and state from
    /// before it.
    Inverse(Box<Function>),
    /// Runs the function on the packet that this packet carries, or on this packet if it carries
    /// none that [`fanpcap_wire`] finds. A packet within the carried one is not looked at. Of a
    /// packet in fragments only the first fragment shows the carried packet. If that first fragment
    /// is steered by its flow, the others follow it.
    Inner(Box<Function>),
    /// Selects the member. Drops a packet without the property that selects it.
    Steer(Steer),
    /// To all members of all classes but 63: the xdp engine only.
    Broadcast,
    /// To members of this class only, 1 to 63: the xdp engine only.
    Classify(u8),
    /// To the host as well (false), or only to the host (true): the xdp engine only.
    Host(bool),
    /// Sets the packet's mark, which later predicates read: the xdp engine only.
    Mark(u32),
    /// Adds to one of [`COUNTERS`] counters.
    Count(u8, i64),
    /// Sets the packet's state.
    SetState(u32),
    /// Passes the first `keep` of every `of` packets, counted on each CPU, and drops the others. 0
    /// < of, keep <= of.
    Sample {
        /// Packets that pass.
        keep: u32,
        /// Packets in a period.
        of: u32,
        /// Index among the steering program's samplers, from 0.
        index: u8,
    },
}

/// Counters of a steering program.
pub const COUNTERS: usize = 64;
/// Fragmented datagrams in the table at most.
pub const FRAGMENTS_MAX: u32 = 16_384;
/// How long the fragments of a datagram stay together, in nanoseconds: 2 s.
pub const FRAGMENT_AGE_NS: u64 = 2_000_000_000;

/// A question about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// Always, or never.
    Constant(bool),
    /// Negation.
    Not(Box<Predicate>),
    /// Both hold.
    And(Box<Predicate>, Box<Predicate>),
    /// At least one holds.
    Or(Box<Predicate>, Box<Predicate>),
    /// Exactly one holds.
    Xor(Box<Predicate>, Box<Predicate>),
    /// The packet has the property, and the property compares so, as unsigned numbers.
    Compare(Property, Comparison, u64),
    /// The packet has the property, and the set of this index in [`Tree::sets`] contains it.
    Member(Property, usize),
    /// The packet has the header, or the characteristic.
    Has(Header),
    /// An address, of either side or of the one given, lies in the net. IPv4 nets hold IPv4
    /// addresses only.
    Address(Side, Net),
    /// An address of the family, cut to its first `bits`, is in the set (an IPv4 address as its
    /// 32-bit number, an IPv6 one as its 128-bit number).
    AddressIn {
        /// The address.
        side: Side,
        /// True for IPv6, false for IPv4.
        ipv6: bool,
        /// Leading bits that count.
        bits: u8,
        /// Index in [`Tree::sets`].
        set: usize,
    },
    /// A port of TCP, UDP, UDP-Lite, SCTP or DCCP. A later fragment has none.
    Port(Side, u16),
    /// The filter of this index in [`Tree::filters`] accepts the frame. Inside `inner` the filter
    /// still reads the whole frame.
    Pcap(usize),
    /// The hash of the key's fields, folded into [`crate::hash::SHARE`], equals `index` modulo
    /// `of`. False if the packet lacks one of the fields.
    Share {
        /// Index of the share.
        index: u32,
        /// Number of shares.
        of: u32,
        /// The fields; see [`Key`].
        key: Key,
    },
    /// UDP with RTP: version 2, the 12 header bytes present, both ports even and at least 1024 (RFC
    /// 3550 section 5.1).
    Rtp,
    /// UDP with RTCP: version 2, 4 bytes present, both ports odd and at least 1024, type 200 to 204
    /// (RFC 3550 section 6).
    Rtcp,
}

/// Selects the source's or the destination's address or port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Either one.
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
    /// At least one of the number's bits is set.
    AnyBit,
    /// All of the number's bits are set.
    AllBits,
}

/// An address prefix; the other bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// The net's first address.
    pub address: IpAddr,
    /// 0 to 32, 0 to 128.
    pub bits: u8,
}

/// A header or characteristic of a packet. "IP" is that of the packet itself, behind VLAN tags,
/// MPLS labels and PPPoE.
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
    /// A fragment that does not begin its datagram.
    LaterFragment,
    /// A carried packet, which `inner` would run on.
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

/// A number in a packet or in its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Property {
    /// The Ethernet type behind all VLAN tags; of an 802.3 frame the length.
    EtherType,
    /// VLAN id of the outermost tag.
    VlanId,
    /// The upper protocol: IPv4's field, or IPv6's next header behind the extension headers.
    Protocol,
    /// IPv4's type of service, IPv6's traffic class.
    Tos,
    /// IPv4's total length; 40 + IPv6's payload length.
    IpLength,
    /// IPv4's identification, or that of IPv6's fragment header.
    IpId,
    /// IPv4's flags and offset as in its header. For IPv6 the same, made of its fragment header
    /// (0x2000 for "more", offset / 8); 0 without a fragment header.
    IpFragment,
    /// Time to live, hop limit.
    Ttl,
    /// TCP source port. All TCP properties require the 20 header bytes.
    TcpSource,
    /// TCP destination port.
    TcpDestination,
    /// In bytes.
    TcpHeaderLength,
    /// UDP source port. All UDP properties require the 8 header bytes.
    UdpSource,
    /// UDP destination port.
    UdpDestination,
    /// The header's field.
    UdpLength,
    /// ICMP's type for IPv4, ICMPv6's for IPv6. Requires 2 bytes; a later fragment has none.
    IcmpType,
    /// The code, likewise.
    IcmpCode,
    /// The kernel's packet mark; absent in XDP.
    Mark,
    /// The state that the steering program has set.
    State,
    /// The receiving queue, from 0; absent if the driver did not record it.
    Queue,
}

/// What selects the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steer {
    /// The flow, both directions alike: addresses, and ports as `ports` says. See `hash.rs`. An
    /// ICMP error goes with the flow that it quotes. Later fragments go with their datagram, whose
    /// last decision is remembered. Drops a packet that is not IP.
    Flow(Flow),
    /// Both Ethernet addresses, both directions alike. A broadcast goes to all members (in a kernel
    /// group: by the addresses).
    Link,
    /// The outermost tag's VLAN id. Drops an untagged packet.
    Vlan,
    /// Members in turn, counted on each CPU.
    RoundRobin,
    /// A random number.
    Random,
    /// The CPU that runs the BPF program.
    Cpu,
    /// The hash from the NIC or the kernel. Without one, or if it is 0: as [`Flow::WHOLE`], and 0
    /// where that drops.
    Rss,
    /// The member of this rank, modulo the members that have a share.
    To(u32),
    /// 1 to 4 bytes at this offset of the frame's bytes, which exclude a tag that the kernel keeps
    /// beside the frame. Drops a frame that is too short.
    Field(Field),
    /// Two fields, in either order. Drops a frame that is too short.
    Fields(Field, Field),
    /// The local side's address. Both sides local: by both in a kernel group and on XDP, to both in
    /// the hub. Neither side local: drops.
    LocalIp(Net),
    /// The local side's network: `net` contains the local addresses, of which the first bits count.
    /// Otherwise as above.
    LocalNet(Net, u8),
    /// The Ethernet address that is not the gateway's. If neither is: by both in a kernel group and
    /// on XDP, to both in the hub.
    LocalLink([u8; 6]),
    /// The fields of a key. Drops a packet that lacks one.
    Key(Key),
    /// Two members, one for each Ethernet address. The xdp engine only.
    DoubleLink,
    /// Two members, one for each IP address. The xdp engine only.
    DoubleIp,
    /// Two members, one for each field. The xdp engine only.
    DoubleField(Field, Field),
    /// For RTP and RTCP: addresses and half the ports, so that both streams of a session go
    /// together. Drops other packets.
    Media,
    /// For GTP-U (UDP port 2152): the inner packet's addresses, both directions alike. GTP-C (2123)
    /// goes to all members (in a kernel group and on XDP: by its addresses). Drops other packets.
    Gtp,
}

/// The properties by which [`Steer::Flow`] distinguishes flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The ports.
    pub ports: Ports,
    /// The upper protocol. (With it, an ICMP error counts as the protocol that it quotes.)
    pub protocol: bool,
    /// The outermost VLAN id, 0 for none.
    pub vlan: bool,
}

/// The protocols whose ports distinguish flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// None.
    None,
    /// TCP; flows of other protocols are distinguished by address only.
    Tcp,
    /// All protocols that have ports.
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

/// A field of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// From the frame's first byte.
    pub offset: u16,
    /// 1 to 4.
    pub len: u8,
}

/// Set of fields, hashed in the order of the constants with their values from the headers. So
/// source and destination are not interchangeable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub u16);

impl Key {
    /// Ethernet type behind the tags.
    pub const ETHER_TYPE: Key = Key(1);
    /// The frame's source address.
    pub const LINK_SOURCE: Key = Key(1 << 1);
    /// The frame's destination address.
    pub const LINK_DESTINATION: Key = Key(1 << 2);
    /// The packet's source.
    pub const IP_SOURCE: Key = Key(1 << 3);
    /// The packet's destination.
    pub const IP_DESTINATION: Key = Key(1 << 4);
    /// The upper protocol.
    pub const PROTOCOL: Key = Key(1 << 5);
    /// The lower two bits of the type of service.
    pub const ECN: Key = Key(1 << 6);
    /// The upper six bits of the type of service.
    pub const DSCP: Key = Key(1 << 7);
    /// Of protocols with ports. Later fragments lack it.
    pub const SOURCE_PORT: Key = Key(1 << 8);
    /// As above.
    pub const DESTINATION_PORT: Key = Key(1 << 9);
    /// As [`Property::IcmpType`].
    pub const ICMP_TYPE: Key = Key(1 << 10);
    /// As [`Property::IcmpCode`].
    pub const ICMP_CODE: Key = Key(1 << 11);
    /// VLAN id of the outermost tag.
    pub const VLAN: Key = Key(1 << 12);

    /// The fields of both.
    pub const fn and(self, other: Key) -> Key {
        Key(self.0 | other.0)
    }

    /// Whether all fields of `other` are in this key.
    pub const fn has(self, other: Key) -> bool {
        self.0 & other.0 == other.0
    }
}
