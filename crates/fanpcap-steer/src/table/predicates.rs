//! Predicates: questions about a packet.

use super::build::{parameter, predicate};
use super::net::cut;
use super::{Built, Described, Given, Group, Kind, Parameter, Wrong};
use crate::ir::{Comparison, Header, Predicate, Property, Side};
use std::net::IpAddr;

type Answer = Result<Built, Wrong>;

pub(super) const PORT: Parameter = parameter("port", Kind::Number(0, 0xffff));
pub(super) const NET: Parameter = parameter("net", Kind::Net);
pub(super) const ETHER_TYPE: Parameter = parameter("type", Kind::Number(0, 0xffff));
pub(super) const PROTOCOL: Parameter = parameter("protocol", Kind::Number(0, 0xff));
/// VLAN ids as arguments. -1 means any tag.
pub(super) const TAGS: Parameter = parameter("ids", Kind::Numbers(-1, 0xfff));
const VID: Parameter = parameter("id", Kind::Number(0, 0xfff));
const WORD: Parameter = parameter("value", Kind::Number(0, 0xffff_ffff));
const CONDITION: Parameter = parameter("p", Kind::Predicate);
pub(super) const BLOOM: [Parameter; 3] = [
    parameter("size", Kind::Number(0, 1 << 24)),
    parameter("addresses", Kind::Hosts),
    parameter("prefix", Kind::Number(0, 128)),
];

pub(super) const GROUP: Group = Group {
    title: "PREDICATES",
    about: "Questions about a packet, for filter, when, unless, conditional and if. A string is a pcap expression if it stands \
            for a predicate.",
    entries: &ENTRIES,
};

static ENTRIES: [Described; 61] = [
    predicate("is_ip", &[], "The packet is IPv4.", "when is_ip (inc 0)", |_| has(Header::Ipv4))
        .or(&["is_ip4", "is_ipv4"])
        .ipv6("Never; see is_ip6 and has_ip."),
    predicate("is_ip6", &[], "The packet is IPv6.", "when is_ip6 (inc 0)", |_| has(Header::Ipv6)).or(&["is_ipv6"]),
    predicate("has_ip", &[], "The packet is IPv4 or IPv6.", "unless has_ip drop", |_| has(Header::Ip)),
    predicate("is_tcp", &[], "The upper protocol is TCP, later fragments included.", "main = when is_tcp drop", |_| protocol(6)),
    predicate("is_udp", &[], "The upper protocol is UDP, later fragments included.", "filter is_udp", |_| protocol(17)),
    predicate("is_sctp", &[], "The upper protocol is SCTP, later fragments included.", "filter is_sctp", |_| protocol(132)),
    predicate("is_dccp", &[], "The upper protocol is DCCP, later fragments included.", "filter is_dccp", |_| protocol(33)),
    predicate("is_udplite", &[], "The upper protocol is UDP-Lite, later fragments included.", "filter is_udplite", |_| protocol(136)),
    predicate("is_icmp", &[], "The upper protocol is ICMP.", "filter (not is_icmp)", |_| Ok(icmp().into()))
        .ipv6("ICMPv6."),
    predicate("is_flow", &[], "The upper protocol is TCP or UDP.", "filter is_flow", |_| Ok(flow().into())),
    predicate("is_l3_proto", &[ETHER_TYPE], "The Ethernet type behind all VLAN tags is this one. For 0x8100, 0x88a8 and 0x9100: the frame \
        has a tag.", "filter (is_l3_proto 0x0806)", |given| Ok(l3_proto(given.number()?).into())),
    predicate("is_l4_proto", &[PROTOCOL], "The upper protocol has this number.", "filter (is_l4_proto 89)", |given| protocol(given.number()?))
        .ipv6("The number after the extension headers."),
    predicate("is_frag", &[], "The packet is a fragment, the first one included.", "unless is_frag (inc 0)", |_| has(Header::Fragment)),
    predicate("is_first_frag", &[], "The packet is the first fragment of a datagram.", "when is_first_frag (inc 1)", |_| has(Header::FirstFragment)),
    predicate("is_more_frag", &[], "The packet is a fragment, but not the first one.", "when is_more_frag (inc 2)", |_| has(Header::LaterFragment)),
    predicate("has_port", &[PORT], "The source or the destination port of TCP, UDP, UDP-Lite, SCTP or DCCP is this one. A later fragment has \
        no ports.", "filter (has_port 80)", |given| Ok(has_port(given, Side::Either)?.into())),
    predicate("has_src_port", &[PORT], "The source port is this one.", "filter (has_src_port 53)", |given| Ok(has_port(given, Side::Source)?.into())),
    predicate("has_dst_port", &[PORT], "The destination port is this one.", "filter (has_dst_port 443)", |given| Ok(has_port(given, Side::Destination)?.into())),
    predicate("has_addr", &[NET], "The source or the destination address is in the net. An address alone is a net of one host.",
        "filter (has_addr \"192.168.0.0/16\")", |given| Ok(has_addr(given, Side::Either)?.into()))
        .ipv6("An IPv6 net has only IPv6 addresses, an IPv4 net only IPv4 addresses."),
    predicate("has_src_addr", &[NET], "The source address is in the net.", "filter (has_src_addr 10.0.0.0/8)", |given| Ok(has_addr(given, Side::Source)?.into())),
    predicate("has_dst_addr", &[NET], "The destination address is in the net.", "filter (has_dst_addr 2001:db8::/32)",
        |given| Ok(has_addr(given, Side::Destination)?.into())),
    predicate("has_vlan", &[], "The frame has a VLAN tag.", "when has_vlan (inc 3)", |_| has(Header::Tag)),
    predicate("has_vid", &[VID], "The outermost tag has this VLAN id.", "filter (has_vid 42)", |given| equal(given, Property::VlanId)),
    predicate("vlan_id", &[TAGS], "The outermost tag's VLAN id is one of these. 0 includes frames without a tag, -1 means any tag.",
        "when (vlan_id [1, 13, 42..45]) (inc 0)", |given| Ok(vlan_id(given)?.into())),
    predicate("has_mark", &[WORD], "The packet's mark is this one.", "when (has_mark 11) (inc 0)", |given| equal(given, Property::Mark)),
    predicate("has_state", &[WORD], "The state that put_state has set is this one.", "put_state 2 >-> when (has_state 2) (inc 0)",
        |given| equal(given, Property::State)),
    predicate("has_inner", &[], "The packet carries a packet on which inner would run.", "when has_inner (inc 4)", |_| has(Header::Inner)),
    predicate("bloom", &BLOOM, "The source or the destination address has the same first prefix bits as one of the addresses. \
        The set is exact, not probabilistic, and the size is ignored.",
        "when (bloom 1024 [\"192.168.0.13\", \"192.168.0.42\"] 32) (inc 0)", |given| Ok(bloom(given, Side::Either)?.into()))
        .ipv6("The addresses are all IPv4, with a prefix of up to 32 bits, or all IPv6, with up to 128."),
    predicate("bloom_src", &BLOOM, "As bloom, for the source address.", "filter (bloom_src 1024 [\"192.168.0.13\"] 24)",
        |given| Ok(bloom(given, Side::Source)?.into())),
    predicate("bloom_dst", &BLOOM, "As bloom, for the destination address.", "filter (bloom_dst 1024 [\"2001:db8::1\"] 64)",
        |given| Ok(bloom(given, Side::Destination)?.into())),
    predicate("is_rtp", &[], "UDP with RTP: version 2, even ports from 1024 (RFC 3550).", "filter is_rtp", |_| Ok(Predicate::Rtp.into())),
    predicate("is_rtcp", &[], "UDP with RTCP: version 2, odd ports from 1024, type 200 to 204 (RFC 3550).", "filter is_rtcp",
        |_| Ok(Predicate::Rtcp.into())),
    predicate("is_sip", &[], "A port is 5060 or 5061.", "filter is_sip", |_| Ok(sip().into())),
    predicate("is_voip", &[], "RTP, RTCP or SIP.", "filter is_voip", |_| Ok(voip().into())),
    predicate("is_gtp", &[], "GTP: UDP with the port 2123 or 2152.", "filter is_gtp", |_| {
        Ok(or(gtp(GTP_C), gtp(GTP_U)).into())
    }),
    predicate("is_gtp_cp", &[], "GTP's control plane: UDP with the port 2123.", "filter is_gtp_cp", |_| Ok(gtp(GTP_C).into())),
    predicate("is_gtp_up", &[], "GTP's user plane: UDP with the port 2152.", "filter is_gtp_up", |_| Ok(gtp(GTP_U).into())),
    predicate("is_broadcast", &[], "The frame goes to the broadcast address.", "unless is_broadcast steer_link", |_| has(Header::LinkBroadcast)),
    predicate("is_multicast", &[], "The frame goes to a group address, broadcast included.", "filter (not is_multicast)", |_| has(Header::LinkMulticast)),
    predicate("is_ip_broadcast", &[], "The packet goes to 255.255.255.255.", "when is_ip_broadcast drop", |_| has(Header::IpBroadcast))
        .ipv6("Never: IPv6 has no broadcast."),
    predicate("is_ip_multicast", &[], "The packet goes to 224.0.0.0/4.", "when is_ip_multicast drop", |_| has(Header::IpMulticast))
        .ipv6("To ff00::/8."),
    predicate("is_eth_pup", &[], "The Ethernet type is 0x0200, PUP.", "filter is_eth_pup", |_| ether_type(0x0200)),
    predicate("is_eth_sprite", &[], "The Ethernet type is 0x0500, Sprite.", "filter is_eth_sprite", |_| ether_type(0x0500)),
    predicate("is_eth_ip", &[], "The Ethernet type is 0x0800, IPv4.", "filter is_eth_ip", |_| ether_type(0x0800)).ipv6("See is_eth_ipv6."),
    predicate("is_eth_arp", &[], "The Ethernet type is 0x0806, ARP.", "filter (not is_eth_arp)", |_| ether_type(0x0806)),
    predicate("is_eth_revarp", &[], "The Ethernet type is 0x8035, reverse ARP.", "filter is_eth_revarp", |_| ether_type(0x8035)),
    predicate("is_eth_at", &[], "The Ethernet type is 0x809b, AppleTalk.", "filter is_eth_at", |_| ether_type(0x809b)),
    predicate("is_eth_aarp", &[], "The Ethernet type is 0x80f3, AppleTalk's ARP.", "filter is_eth_aarp", |_| ether_type(0x80f3)),
    predicate("is_eth_vlan", &[], "The frame has a VLAN tag, as has_vlan.", "filter is_eth_vlan", |_| has(Header::Tag)),
    predicate("is_eth_ipx", &[], "The Ethernet type is 0x8137, IPX.", "filter is_eth_ipx", |_| ether_type(0x8137)),
    predicate("is_eth_ipv6", &[], "The Ethernet type is 0x86dd, IPv6.", "filter is_eth_ipv6", |_| ether_type(0x86dd)),
    predicate("is_eth_loopback", &[], "The Ethernet type is 0x9000, loopback.", "filter is_eth_loopback", |_| ether_type(0x9000)),
    predicate("pcap", &[parameter("expression", Kind::Pcap)], "The pcap expression, pcap-filter(7), accepts the frame. Within inner, the expression still reads the \
        whole frame.", "when (pcap \"tcp port 443\") (inc 0)", |given| Ok(given.predicate()?.into())),
    predicate("share", &SHARE, "The hash of the key's fields divides packets into this many equal parts, and the packet is in the part with this index, from 0. False if the packet \
        lacks a field.", "filter (share 0 4 \"ip_src,ip_dst\")", share),
    predicate("always", &[], "Any packet.", "filter always", |_| Ok(Predicate::Constant(true).into())),
    predicate("never", &[], "No packet.", "filter (not never)", |_| Ok(Predicate::Constant(false).into())),
    predicate("not", &[CONDITION], "The negation of p.", "filter (not is_tcp)", |given| {
        Ok(Predicate::Not(given.predicate()?.into()).into())
    }),
    predicate("and", &[CONDITION, parameter("q", Kind::Predicate)], "Both are true; written p .&&. q.", "filter (is_tcp .&&. has_port 80)",
        |given| Ok(Predicate::And(given.predicate()?.into(), given.predicate()?.into()).into())),
    predicate("or", &[CONDITION, parameter("q", Kind::Predicate)], "One or both are true; written p .||. q, which binds looser than .^^. and .&&.",
        "filter (is_udp .||. is_tcp .&&. has_port 80)", |given| Ok(or(given.predicate()?, given.predicate()?).into())),
    predicate("xor", &[CONDITION, parameter("q", Kind::Predicate)], "Exactly one is true; written p .^^. q.", "filter (is_udp .^^. has_port 53)",
        |given| Ok(Predicate::Xor(given.predicate()?.into(), given.predicate()?.into()).into())),
    predicate("is_in", &[parameter("property", Kind::Property), parameter("values", Kind::Numbers(0, u64::MAX as i128))],
        "The packet has the property, and it is one of the values.", "filter (tcp_dest `is_in` [80, 443, 8000..8080])", |given| {
        let property = given.property()?;
        Ok(member(given, property)?.into())
    }),
];

const SHARE: [Parameter; 3] = [
    parameter("index", Kind::Number(0, u32::MAX as i128 - 1)),
    parameter("parts", Kind::Number(1, u32::MAX as i128)),
    parameter("key", Kind::Key),
];
const GTP_C: u16 = 2123;
const GTP_U: u16 = 2152;

fn has(header: Header) -> Answer {
    Ok(Predicate::Has(header).into())
}

pub(super) fn is(property: Property, value: u64) -> Predicate {
    Predicate::Compare(property, Comparison::Equal, value)
}

pub(super) fn and(one: Predicate, other: Predicate) -> Predicate {
    Predicate::And(Box::new(one), Box::new(other))
}

pub(super) fn or(one: Predicate, other: Predicate) -> Predicate {
    Predicate::Or(Box::new(one), Box::new(other))
}

fn protocol(number: u64) -> Answer {
    Ok(is(Property::Protocol, number).into())
}

fn ether_type(number: u64) -> Answer {
    Ok(is(Property::EtherType, number).into())
}

fn equal(given: &mut Given<'_>, property: Property) -> Answer {
    Ok(is(property, given.number()?).into())
}

pub(super) fn icmp() -> Predicate {
    let of = |header, number| and(Predicate::Has(header), is(Property::Protocol, number));
    or(of(Header::Ipv4, 1), of(Header::Ipv6, 58))
}

pub(super) fn flow() -> Predicate {
    or(is(Property::Protocol, 6), is(Property::Protocol, 17))
}

pub(super) fn l3_proto(number: u16) -> Predicate {
    match number {
        0x8100 | 0x88a8 | 0x9100 => Predicate::Has(Header::Tag),
        number => is(Property::EtherType, number.into()),
    }
}

pub(super) fn sip() -> Predicate {
    or(
        Predicate::Port(Side::Either, 5060),
        Predicate::Port(Side::Either, 5061),
    )
}

pub(super) fn voip() -> Predicate {
    or(sip(), or(Predicate::Rtp, Predicate::Rtcp))
}

/// UDP with this port on either side. `src` and `dst` do not restrict the side.
fn gtp(port: u16) -> Predicate {
    let of = |property| is(property, port.into());
    or(of(Property::UdpSource), of(Property::UdpDestination))
}

pub(super) fn gtp_control() -> Predicate {
    gtp(GTP_C)
}

pub(super) fn gtp_user() -> Predicate {
    gtp(GTP_U)
}

pub(super) fn has_port(given: &mut Given<'_>, side: Side) -> Result<Predicate, Wrong> {
    Ok(Predicate::Port(side, given.number()?))
}

pub(super) fn has_addr(given: &mut Given<'_>, side: Side) -> Result<Predicate, Wrong> {
    Ok(Predicate::Address(side, given.net()?))
}

fn member(given: &mut Given<'_>, property: Property) -> Result<Predicate, Wrong> {
    let values = given.numbers()?;
    let values = values
        .into_iter()
        .filter_map(|value| u128::try_from(value).ok());
    Ok(Predicate::Member(property, given.set(values.collect())))
}

pub(super) fn vlan_id(given: &mut Given<'_>) -> Result<Predicate, Wrong> {
    let ids = given.numbers()?;
    if ids.contains(&-1) && ids.contains(&0) {
        return Ok(Predicate::Constant(true));
    }
    if ids.contains(&-1) {
        return Ok(Predicate::Has(Header::Tag));
    }
    let untagged = ids.contains(&0);
    let ids = ids.into_iter().filter_map(|id| u128::try_from(id).ok());
    let tagged = Predicate::Member(Property::VlanId, given.set(ids.collect()));
    let none = Predicate::Not(Box::new(Predicate::Has(Header::Tag)));
    Ok(if untagged { or(none, tagged) } else { tagged })
}

pub(super) fn bloom(given: &mut Given<'_>, side: Side) -> Result<Predicate, Wrong> {
    let _size: u32 = given.number()?;
    let hosts = given.hosts()?;
    let bits: u8 = given.number()?;
    let ipv6 = hosts.iter().any(IpAddr::is_ipv6);
    if ipv6 && hosts.iter().any(IpAddr::is_ipv4) {
        return Err(Wrong::new(
            1,
            "expected addresses of one family, found IPv4 and IPv6",
        ));
    }
    if !ipv6 && bits > 32 {
        return Err(Wrong::new(
            2,
            format!("expected a prefix from 0 to 32, found {bits}"),
        ));
    }
    let values = hosts.into_iter().map(|host| match cut(host, bits).address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    });
    let set = given.set(values.collect());
    Ok(Predicate::AddressIn {
        side,
        ipv6,
        bits,
        set,
    })
}

fn share(given: &mut Given<'_>) -> Answer {
    let (index, of) = (given.number()?, given.number()?);
    if index >= of {
        let message = format!("expected an index below the number of parts, {of}, found {index}");
        return Err(Wrong::new(0, message));
    }
    let key = given.key()?;
    Ok(Predicate::Share { index, of, key }.into())
}
