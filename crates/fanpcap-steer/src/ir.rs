//! The tree of a steering program: its meaning, without names, types and syntactic sugar. All back
//! ends use the tree.
//!
//! A packet starts with the outcome "copy to every member of the default class" and with state 0. A
//! function passes the packet on, maybe with another outcome, or drops it. If a function of a
//! sequence drops the packet, the later functions of the sequence do not run. A later steering
//! function overrides an earlier one.

mod all;
mod nodes;

pub use nodes::{Node, NodeMut};

use fanpcap_bpf::Classic;
use std::net::IpAddr;

/// Version of the meaning of trees. Increment it with every change that makes a compiled steering
/// program select, count or steer differently. The digest of a steering program includes this
/// number. So members of builds with different meanings see that they disagree, even if they have
/// the same tree.
///
/// - Meaning 1: the kernel takes the group's hashes modulo the number of sockets.
/// - Meaning 2: the group has a table.
/// - Meaning 3: payload that no type announces is taken for a packet only if the packet's header is
///   consistent, more tags and tunnels are read, and the offsets of fields do not count the
///   outermost tag.
/// - Meaning 4: the members' filters count dropped packets in the group's table.
pub const MEANING: u32 = 4;

/// A checked steering program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The function that every packet runs through.
    pub main: Function,
    /// The sets, by the index in [`Predicate::Member`]. Each set is sorted and has no duplicates.
    pub sets: Vec<Vec<u128>>,
    /// The pcap filters, by the index in [`Predicate::Pcap`].
    pub filters: Vec<Filter>,
}

/// A pcap expression, compiled to classic BPF. The system's libpcap compiles the expression for
/// Ethernet without a device, so that the code reads only the frame's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The expression.
    pub text: String,
    /// The compiled expression, in classic BPF (linux/filter.h). The code expects VLAN tags among
    /// the frame's bytes.
    pub code: Vec<Classic>,
}

/// An operation on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Function {
    /// Does nothing.
    Pass,
    /// Drops the packet.
    Drop,
    /// Runs functions one after the other, until a function drops the packet.
    Sequence(Vec<Function>),
    /// Runs the first function if the predicate holds, else the second one. `filter p` is `If(p,
    /// Pass, Drop)`.
    If(Box<Predicate>, Box<Function>, Box<Function>),
    /// Runs alternatives until an alternative does not drop the packet. If an alternative drops the
    /// packet, outcome and state become what they were before this alternative. What the
    /// alternative has counted stays counted.
    First(Vec<Function>),
    /// Drops the packet if the function passes it. Passes the packet if the function drops it, with
    /// the outcome and state that the packet had before the function.
    Inverse(Box<Function>),
    /// Runs the function on the packet that this packet carries, or on this packet if
    /// [`fanpcap_wire`] finds no carried packet. The function does not read packets within the
    /// carried packet. If a packet is in fragments, only the first fragment contains the headers of
    /// the carried packet. If the first fragment is steered by its flow, the other fragments go to
    /// the same member.
    Inner(Box<Function>),
    /// Selects the member. Drops a packet that lacks the property by which the member is selected.
    Steer(Steer),
    /// Gives the packet to all members of all classes except 63. Only on the XDP engine.
    Broadcast,
    /// Gives the packet only to members of this class, 1 to 63. Only on the XDP engine.
    Classify(u8),
    /// Gives the packet to the host too (`false`), or only to the host (`true`). Only on the XDP
    /// engine.
    Host(bool),
    /// Sets the packet's mark. Predicates that run later read this mark. Only on the XDP engine.
    Mark(u32),
    /// Adds this number to the counter with this index. There are [`COUNTERS`] counters.
    Count(u8, i64),
    /// Sets the packet's state.
    SetState(u32),
    /// Passes the first `keep` of every `of` packets and drops the other packets. Each CPU counts
    /// its own packets. `of` is at least 1, and `keep` is at most `of`.
    Sample {
        /// Packets that pass.
        keep: u32,
        /// Packets in a period.
        of: u32,
        /// Index among the steering program's samplers, from 0.
        index: u8,
    },
}

/// Number of a steering program's counters.
pub const COUNTERS: usize = 64;
/// Maximum number of datagrams that the table of fragments holds.
pub const FRAGMENTS_MAX: u32 = 16_384;
/// Time in nanoseconds after which the fragments of a datagram need not stay together any more.
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
    /// The packet has the property, and the comparison of its value with this number holds. Both
    /// are unsigned numbers.
    Compare(Property, Comparison, u64),
    /// The packet has the property, and the set with this index in [`Tree::sets`] contains its
    /// value.
    Member(Property, usize),
    /// The packet has the header, or the characteristic.
    Has(Header),
    /// An address of this side is in the net. IPv4 nets contain only IPv4 addresses.
    Address(Side, Net),
    /// The packet has an address of the family `ipv6`, and the address's first `bits` bits,
    /// followed by zeros, are in the set. The set has an IPv4 address as a 32-bit number, and an
    /// IPv6 address as a 128-bit number.
    AddressIn {
        /// The side of the address.
        side: Side,
        /// True for IPv6, false for IPv4.
        ipv6: bool,
        /// Number of leading bits that are compared.
        bits: u8,
        /// Index in [`Tree::sets`].
        set: usize,
    },
    /// A port of this side has this number. TCP, UDP, UDP-Lite, SCTP and DCCP have ports. A later
    /// fragment has no port.
    Port(Side, u16),
    /// The filter with this index in [`Tree::filters`] accepts the frame. Inside `inner` the filter
    /// still reads the whole frame.
    Pcap(usize),
    /// The hash of the key's fields, modulo `of`, is `index`. The hash starts from
    /// [`crate::hash::SHARE`]. The predicate is false if the packet lacks a field of the key.
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

/// Selects the address or port of one side, or of either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Either side.
    Either,
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// The operator that compares a property with a number.
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

/// An address prefix. The bits behind the prefix are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// The net's first address.
    pub address: IpAddr,
    /// Length of the prefix: 0 to 32 for IPv4, 0 to 128 for IPv6.
    pub bits: u8,
}

/// A header or characteristic of a packet. "IP" is the IP header of the packet itself, behind VLAN
/// tags, MPLS labels and PPPoE.
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
    /// IPv4 or IPv6.
    Ip,
    /// A fragment of a datagram, the first fragment or a later one.
    Fragment,
    /// A fragment that begins its datagram.
    FirstFragment,
    /// A fragment that does not begin its datagram.
    LaterFragment,
    /// A carried packet, on which `inner` would run.
    Inner,
    /// The frame's destination is the broadcast address.
    LinkBroadcast,
    /// The frame's destination is a group address, which may be the broadcast address.
    LinkMulticast,
    /// IPv4's destination is 255.255.255.255.
    IpBroadcast,
    /// IPv4's destination is in 224.0.0.0/4, or IPv6's destination is in ff00::/8.
    IpMulticast,
}

/// A number in a packet or in its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Property {
    /// The Ethernet type behind all VLAN tags, or the length field of an 802.3 frame.
    EtherType,
    /// VLAN id of the outermost tag.
    VlanId,
    /// The upper protocol: IPv4's field, or IPv6's next header behind the extension headers.
    Protocol,
    /// IPv4's type of service, IPv6's traffic class.
    Tos,
    /// IPv4's total length. For IPv6: 40 + the payload length.
    IpLength,
    /// IPv4's identification, or the identification in IPv6's fragment header.
    IpId,
    /// IPv4's flags and offset as in its header. For IPv6, the flags and offset of the fragment
    /// header in IPv4's format (0x2000 for "more", offset / 8), or 0 if there is no fragment
    /// header.
    IpFragment,
    /// IPv4's time to live, IPv6's hop limit.
    Ttl,
    /// TCP source port. All TCP properties require the 20 header bytes.
    TcpSource,
    /// TCP destination port.
    TcpDestination,
    /// TCP header length in bytes.
    TcpHeaderLength,
    /// UDP source port. All UDP properties require the 8 header bytes.
    UdpSource,
    /// UDP destination port.
    UdpDestination,
    /// The length field of the UDP header.
    UdpLength,
    /// The type of ICMP (in IPv4) or ICMPv6 (in IPv6). The header's first 2 bytes must be there. A
    /// later fragment has no type.
    IcmpType,
    /// The code of ICMP or ICMPv6, with the same conditions as [`Property::IcmpType`].
    IcmpCode,
    /// The kernel's packet mark; absent in XDP.
    Mark,
    /// The state that the steering program has set.
    State,
    /// The receiving queue, from 0; absent if the driver did not record it.
    Queue,
}

/// The property by which a packet's member is selected. "Without a group" means: in an evaluator of
/// [`crate::native::Evaluator::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steer {
    /// The flow: the addresses, and the properties in [`Flow`]. Both directions of a flow have the
    /// same hash (`hash.rs`). An ICMP error goes to the member of the flow of the packet that it
    /// quotes. Later fragments go to the member of their datagram, because the last decision for
    /// the datagram is remembered. Drops a packet that is not IP.
    Flow(Flow),
    /// Both Ethernet addresses, in either order. Without a group, a broadcast goes to all members.
    Link,
    /// The outermost tag's VLAN id. Drops an untagged packet.
    Vlan,
    /// The members one after the other. Each CPU counts its own packets.
    RoundRobin,
    /// A random number.
    Random,
    /// The CPU on which the BPF program runs.
    Cpu,
    /// The hash from the NIC or the kernel. If that hash is absent or 0, the hash of the flow by
    /// [`Flow::WHOLE`]. If that hash is absent and the packet is not IP, the hash is 0.
    Rss,
    /// The member of this rank, modulo the number of members with a share.
    To(u32),
    /// 1 to 4 bytes at this offset of the frame's bytes, which exclude a tag that the kernel keeps
    /// beside the frame. Drops a frame that is too short.
    Field(Field),
    /// Two fields, in either order. Drops a frame that is too short.
    Fields(Field, Field),
    /// The local side's address. If both sides are local, the member is selected by both addresses;
    /// without a group, the packet then goes to one member for each address. Drops the packet if
    /// neither side is local.
    LocalIp(Net),
    /// As [`Steer::LocalIp`], but the member is selected by only the first bits of the address. The
    /// `u8` is the number of these bits. The net contains the local addresses.
    LocalNet(Net, u8),
    /// The Ethernet address that is not the gateway's address. If neither address is the gateway's,
    /// the member is selected by both addresses; without a group, the packet then goes to one
    /// member for each address.
    LocalLink([u8; 6]),
    /// The fields of a key. Drops a packet that lacks a field.
    Key(Key),
    /// Two members, one for each Ethernet address. Only on the XDP engine.
    DoubleLink,
    /// Two members, one for each IP address. Only on the XDP engine.
    DoubleIp,
    /// Two members, one for each field. Only on the XDP engine.
    DoubleField(Field, Field),
    /// For RTP and RTCP: the addresses and each port number divided by 2. So the RTP packets of a
    /// session (port 2n) and its RTCP packets (port 2n + 1) go to one member. Drops other packets.
    Media,
    /// For GTP-U (UDP port 2152): the carried packet's addresses, in either order. For GTP-C (UDP
    /// port 2123): the packet's own addresses; without a group, the packet goes to all members.
    /// Drops other packets.
    Gtp,
}

/// The properties by which [`Steer::Flow`] distinguishes flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The ports.
    pub ports: Ports,
    /// The upper protocol. For an ICMP error, the protocol of the packet that the error quotes.
    pub protocol: bool,
    /// The outermost VLAN id, or 0 without a tag.
    pub vlan: bool,
}

/// The protocols whose flows are distinguished by ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// No protocol.
    None,
    /// TCP. Flows of other protocols are distinguished by address only.
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
    /// Offset from the frame's first byte.
    pub offset: u16,
    /// Length in bytes, 1 to 4.
    pub len: u8,
}

/// A set of fields. The hash folds in the values of the fields, in the order of the constants. So
/// if source and destination change places, the hash changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub u16);

impl Key {
    /// Ethernet type behind the tags.
    pub const ETHER_TYPE: Key = Key(1);
    /// The frame's source address.
    pub const LINK_SOURCE: Key = Key(1 << 1);
    /// The frame's destination address.
    pub const LINK_DESTINATION: Key = Key(1 << 2);
    /// The packet's source address.
    pub const IP_SOURCE: Key = Key(1 << 3);
    /// The packet's destination address.
    pub const IP_DESTINATION: Key = Key(1 << 4);
    /// The upper protocol.
    pub const PROTOCOL: Key = Key(1 << 5);
    /// The lower two bits of the type of service.
    pub const ECN: Key = Key(1 << 6);
    /// The upper six bits of the type of service.
    pub const DSCP: Key = Key(1 << 7);
    /// The source port, of protocols with ports. Later fragments have no ports.
    pub const SOURCE_PORT: Key = Key(1 << 8);
    /// The destination port, as [`Key::SOURCE_PORT`].
    pub const DESTINATION_PORT: Key = Key(1 << 9);
    /// As [`Property::IcmpType`].
    pub const ICMP_TYPE: Key = Key(1 << 10);
    /// As [`Property::IcmpCode`].
    pub const ICMP_CODE: Key = Key(1 << 11);
    /// VLAN id of the outermost tag.
    pub const VLAN: Key = Key(1 << 12);

    /// A key with the fields of both keys.
    pub const fn and(self, other: Key) -> Key {
        Key(self.0 | other.0)
    }

    /// Whether all fields of `other` are in this key.
    pub const fn has(self, other: Key) -> bool {
        self.0 & other.0 == other.0
    }
}
