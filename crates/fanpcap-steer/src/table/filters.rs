//! Filters: predicates that are functions.

use super::build::function;
use super::combinators::filter;
use super::predicates::{
    BLOOM, ETHER_TYPE, NET, PORT, PROTOCOL, TAGS, bloom, flow, gtp_control, gtp_user, has_addr,
    has_port, icmp, is, l3_proto, or, sip, vlan_id, voip,
};
use super::{Described, Group};
use crate::ir::{Header, Predicate, Property, Side};

pub(super) const GROUP: Group = Group {
    title: "FILTERS",
    about: "Functions that keep or drop a packet. Each means filter with the corresponding predicate.",
    entries: &ENTRIES,
};

macro_rules! filters {
    ($($name:literal $(| $alias:literal)*, $takes:expr, $meaning:literal, $ipv6:literal,
       $example:literal, $given:pat => $predicate:expr;)*) => {
        static ENTRIES: [Described; [$($name),*].len()] = [
            $(function($name, $takes, $meaning, $example, |$given| Ok(filter($predicate).into()))
                .or(&[$($alias),*])
                .ipv6($ipv6)),*
        ];
    };
}

filters! {
    "ip" | "ip4" | "ipv4", &[], "IPv4.", "Drops; see ip6.", "ip >-> steer_p2p", _ => has(Header::Ipv4);
    "ip6" | "ipv6", &[], "IPv6.", "", "par ip ip6", _ => has(Header::Ipv6);
    "tcp", &[], "TCP.", "", "main = tcp >-> steer_flow", _ => protocol(6);
    "udp", &[], "UDP.", "", "udp >-> steer_flow", _ => protocol(17);
    "sctp", &[], "SCTP.", "", "sctp >-> steer_flow", _ => protocol(132);
    "dccp", &[], "DCCP.", "", "dccp >-> steer_flow", _ => protocol(33);
    "udplite", &[], "UDP-Lite.", "", "udplite >-> steer_flow", _ => protocol(136);
    "icmp", &[], "ICMP.", "ICMPv6.", "icmp >-> steer_p2p", _ => icmp();
    "flow", &[], "TCP or UDP. The fan-out mode of this name is different: see MODES.", "", "flow >-> steer_flow", _ => flow();
    "vlan", &[], "Frames with a VLAN tag.", "", "vlan >-> steer_vlan", _ => has(Header::Tag);
    "vlan_or_untagged", &[], "Frames with a VLAN tag or without one: all Ethernet frames. No function needs it, because every function reads the headers behind the tags.",
        "", "vlan_or_untagged >-> steer_flow", _ => has(Header::Link);
    "l3_proto", &[ETHER_TYPE], "As is_l3_proto.", "", "l3_proto 0x842 >-> inc 0", given => l3_proto(given.number()?);
    "l4_proto", &[PROTOCOL], "As is_l4_proto.", "", "l4_proto 89 >-> inc 0", given => protocol(given.number()?);
    "no_frag", &[], "No fragments.", "", "no_frag >-> steer_flow", _ => lacks(Header::Fragment);
    "no_more_frag", &[], "No fragments except first ones.", "", "no_more_frag >-> steer_flow", _ => lacks(Header::LaterFragment);
    "port", &[PORT], "As has_port.", "", "port 80 >-> steer_flow", given => has_port(given, Side::Either)?;
    "src_port", &[PORT], "As has_src_port.", "", "src_port 80", given => has_port(given, Side::Source)?;
    "dst_port", &[PORT], "As has_dst_port.", "", "dst_port 80", given => has_port(given, Side::Destination)?;
    "addr", &[NET], "As has_addr.", "", "addr (CIDR (\"192.168.0.0\", 24))", given => has_addr(given, Side::Either)?;
    "src_addr", &[NET], "As has_src_addr.", "", "src_addr \"0.0.0.0/0\"", given => has_addr(given, Side::Source)?;
    "dst_addr", &[NET], "As has_dst_addr.", "", "dst_addr \"2001:db8::/32\"", given => has_addr(given, Side::Destination)?;
    "vlan_id_filter", &[TAGS], "As vlan_id.", "", "vlan_id_filter [1, 2, 3] >-> steer_flow", given => vlan_id(given)?;
    "bloom_filter", &BLOOM, "As bloom.", "", "bloom_filter 1024 [\"192.168.0.0\"] 16", given => bloom(given, Side::Either)?;
    "bloom_src_filter", &BLOOM, "As bloom_src.", "", "bloom_src_filter 1024 [\"192.168.0.13\"] 32", given => bloom(given, Side::Source)?;
    "bloom_dst_filter", &BLOOM, "As bloom_dst.", "", "bloom_dst_filter 1024 [\"192.168.0.13\"] 32", given => bloom(given, Side::Destination)?;
    "rtp", &[], "RTP, as is_rtp.", "", "rtp >-> steer_rtp", _ => Predicate::Rtp;
    "rtcp", &[], "RTCP, as is_rtcp.", "", "rtcp >-> steer_rtp", _ => Predicate::Rtcp;
    "sip", &[], "SIP, as is_sip.", "", "sip >-> steer_p2p", _ => sip();
    "voip", &[], "RTP, RTCP or SIP.", "", "voip >-> steer_p2p", _ => voip();
    "gtp", &[], "GTP, as is_gtp.", "", "gtp >-> steer_gtp", _ => or(gtp_control(), gtp_user());
    "gtp_cp", &[], "GTP's control plane.", "", "gtp_cp >-> steer_p2p", _ => gtp_control();
    "gtp_up", &[], "GTP's user plane.", "", "gtp_up >-> inner steer_flow", _ => gtp_user();
    "mac_broadcast", &[], "As is_broadcast.", "", "mac_broadcast >-> inc 0", _ => has(Header::LinkBroadcast);
    "mac_multicast", &[], "As is_multicast.", "", "inv mac_multicast", _ => has(Header::LinkMulticast);
    "ip_broadcast", &[], "As is_ip_broadcast.", "Drops.", "ip_broadcast >-> inc 0", _ => has(Header::IpBroadcast);
    "ip_multicast", &[], "As is_ip_multicast.", "To ff00::/8.", "inv ip_multicast", _ => has(Header::IpMulticast);
}

fn has(header: Header) -> Predicate {
    Predicate::Has(header)
}

fn lacks(header: Header) -> Predicate {
    Predicate::Not(has(header).into())
}

fn protocol(number: u64) -> Predicate {
    is(Property::Protocol, number)
}
