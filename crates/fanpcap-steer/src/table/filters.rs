//! Filters: predicates that are functions.

use super::build::function;
use super::combinators::filter;
use super::predicates::{
    self, BLOOM, ETHER_TYPE, NET, PORT, PROTOCOL, TAGS, bloom, gtp_control, gtp_user, is, or,
};
use super::{Built, Described, Group, Wrong};
use crate::ir::{Header, Predicate, Property, Side};

pub(super) const GROUP: Group = Group {
    title: "FILTERS",
    about: "Functions that go on or drop. Each is filter with the predicate of that meaning.",
    entries: &ENTRIES,
};

static ENTRIES: [Described; 36] = [
    function("ip", &[], "IPv4.", "ip >-> steer_p2p", |_| {
        has(Header::Ipv4)
    })
    .or(&["ip4", "ipv4"])
    .ipv6("Drops; see ip6."),
    function("ip6", &[], "IPv6.", "par ip ip6", |_| has(Header::Ipv6)).or(&["ipv6"]),
    function("tcp", &[], "TCP.", "main = tcp >-> steer_flow", |_| {
        protocol(6)
    }),
    function("udp", &[], "UDP.", "udp >-> steer_flow", |_| protocol(17)),
    function("sctp", &[], "SCTP.", "sctp >-> steer_flow", |_| {
        protocol(132)
    }),
    function("dccp", &[], "DCCP.", "dccp >-> steer_flow", |_| {
        protocol(33)
    }),
    function(
        "udplite",
        &[],
        "UDP-Lite.",
        "udplite >-> steer_flow",
        |_| protocol(136),
    ),
    function("icmp", &[], "ICMP.", "icmp >-> steer_p2p", |_| {
        Ok(filter(predicates::icmp()).into())
    })
    .ipv6("ICMPv6."),
    function(
        "flow",
        &[],
        "TCP or UDP. The fan-out mode of this name is another thing: see MODES.",
        "flow >-> steer_flow",
        |_| Ok(filter(predicates::flow()).into()),
    ),
    function(
        "vlan",
        &[],
        "Frames with a VLAN tag.",
        "vlan >-> steer_vlan",
        |_| has(Header::Tag),
    ),
    function(
        "vlan_or_untagged",
        &[],
        "Frames with a VLAN tag or without one, which is all of Ethernet: every function looks behind the tags by \
        itself.",
        "vlan_or_untagged >-> steer_flow",
        |_| has(Header::Link),
    ),
    function(
        "l3_proto",
        &[ETHER_TYPE],
        "As is_l3_proto.",
        "l3_proto 0x842 >-> inc 0",
        |given| Ok(filter(predicates::l3_proto(given.number()?)).into()),
    ),
    function(
        "l4_proto",
        &[PROTOCOL],
        "As is_l4_proto.",
        "l4_proto 89 >-> inc 0",
        |given| protocol(given.number()?),
    ),
    function(
        "no_frag",
        &[],
        "No fragments.",
        "no_frag >-> steer_flow",
        |_| lacks(Header::Fragment),
    ),
    function(
        "no_more_frag",
        &[],
        "No fragments but the first one.",
        "no_more_frag >-> steer_flow",
        |_| lacks(Header::LaterFragment),
    ),
    function(
        "port",
        &[PORT],
        "As has_port.",
        "port 80 >-> steer_flow",
        |given| filtered(predicates::has_port(given, Side::Either)),
    ),
    function(
        "src_port",
        &[PORT],
        "As has_src_port.",
        "src_port 80",
        |given| filtered(predicates::has_port(given, Side::Source)),
    ),
    function(
        "dst_port",
        &[PORT],
        "As has_dst_port.",
        "dst_port 80",
        |given| filtered(predicates::has_port(given, Side::Destination)),
    ),
    function(
        "addr",
        &[NET],
        "As has_addr.",
        "addr (CIDR (\"192.168.0.0\", 24))",
        |given| filtered(predicates::has_addr(given, Side::Either)),
    ),
    function(
        "src_addr",
        &[NET],
        "As has_src_addr.",
        "src_addr \"0.0.0.0/0\"",
        |given| filtered(predicates::has_addr(given, Side::Source)),
    ),
    function(
        "dst_addr",
        &[NET],
        "As has_dst_addr.",
        "dst_addr \"2001:db8::/32\"",
        |given| filtered(predicates::has_addr(given, Side::Destination)),
    ),
    function(
        "vlan_id_filter",
        &[TAGS],
        "As vlan_id.",
        "vlan_id_filter [1, 2, 3] >-> steer_flow",
        |given| Ok(filter(predicates::vlan_id(given)?).into()),
    ),
    function(
        "bloom_filter",
        &BLOOM,
        "As bloom.",
        "bloom_filter 1024 [\"192.168.0.0\"] 16",
        |given| Ok(filter(bloom(given, Side::Either)?).into()),
    ),
    function(
        "bloom_src_filter",
        &BLOOM,
        "As bloom_src.",
        "bloom_src_filter 1024 [\"192.168.0.13\"] 32",
        |given| Ok(filter(bloom(given, Side::Source)?).into()),
    ),
    function(
        "bloom_dst_filter",
        &BLOOM,
        "As bloom_dst.",
        "bloom_dst_filter 1024 [\"192.168.0.13\"] 32",
        |given| Ok(filter(bloom(given, Side::Destination)?).into()),
    ),
    function("rtp", &[], "RTP, as is_rtp.", "rtp >-> steer_rtp", |_| {
        Ok(filter(Predicate::Rtp).into())
    }),
    function(
        "rtcp",
        &[],
        "RTCP, as is_rtcp.",
        "rtcp >-> steer_rtp",
        |_| Ok(filter(Predicate::Rtcp).into()),
    ),
    function("sip", &[], "SIP, as is_sip.", "sip >-> steer_p2p", |_| {
        Ok(filter(predicates::sip()).into())
    }),
    function(
        "voip",
        &[],
        "RTP, RTCP or SIP.",
        "voip >-> steer_p2p",
        |_| Ok(filter(predicates::voip()).into()),
    ),
    function("gtp", &[], "GTP, as is_gtp.", "gtp >-> steer_gtp", |_| {
        Ok(filter(or(gtp_control(), gtp_user())).into())
    }),
    function(
        "gtp_cp",
        &[],
        "GTP's control plane.",
        "gtp_cp >-> steer_p2p",
        |_| Ok(filter(gtp_control()).into()),
    ),
    function(
        "gtp_up",
        &[],
        "GTP's user plane.",
        "gtp_up >-> inner steer_flow",
        |_| Ok(filter(gtp_user()).into()),
    ),
    function(
        "mac_broadcast",
        &[],
        "As is_broadcast.",
        "mac_broadcast >-> inc 0",
        |_| has(Header::LinkBroadcast),
    ),
    function(
        "mac_multicast",
        &[],
        "As is_multicast.",
        "inv mac_multicast",
        |_| has(Header::LinkMulticast),
    ),
    function(
        "ip_broadcast",
        &[],
        "As is_ip_broadcast.",
        "ip_broadcast >-> inc 0",
        |_| has(Header::IpBroadcast),
    )
    .ipv6("Drops."),
    function(
        "ip_multicast",
        &[],
        "As is_ip_multicast.",
        "inv ip_multicast",
        |_| has(Header::IpMulticast),
    )
    .ipv6("To ff00::/8."),
];

fn has(header: Header) -> Result<Built, Wrong> {
    Ok(filter(Predicate::Has(header)).into())
}

fn lacks(header: Header) -> Result<Built, Wrong> {
    Ok(filter(Predicate::Not(Predicate::Has(header).into())).into())
}

fn protocol(number: u64) -> Result<Built, Wrong> {
    Ok(filter(is(Property::Protocol, number)).into())
}

fn filtered(predicate: Result<Predicate, Wrong>) -> Result<Built, Wrong> {
    Ok(filter(predicate?).into())
}
