//! The programs of PFQ-Lang's documentation, except those that transmit or log.

use anyhow::Result;

use crate::cast::Row::{At, ByFlow, Somewhere, Together};
use crate::cast::{Case, ICMP4, ICMP6, NO_IP, OTHER4, TCP4, TCP6, UDP4, UDP6, check};
use crate::scene::on_scene;

const IP4: [&[&str]; 4] = [TCP4, UDP4, ICMP4, OTHER4];
const IP6: [&[&str]; 3] = [TCP6, UDP6, ICMP6];
const IP: [&[&str]; 7] = [TCP4, UDP4, ICMP4, OTHER4, TCP6, UDP6, ICMP6];
const ALL: [&[&str]; 8] = [TCP4, UDP4, ICMP4, OTHER4, TCP6, UDP6, ICMP6, NO_IP];
const NOT_UDP: [&[&str]; 6] = [TCP4, ICMP4, OTHER4, TCP6, ICMP6, NO_IP];
const FRAGMENTS: &[&str] = &["head", "tail"];
/// UDP over IPv4, except fragments and tagged frames.
const WHOLE_UDP4: &[&str] = &[
    "dns>", "dns<", "sip", "rtp>", "rtp<", "rtcp>", "rtcp<", "dhcp", "vxlan",
];

const TO_SUBNET: &[&str] = &[
    "http>", "old", "vlan10", "dns>", "head", "tail", "sip", "rtp>", "rtcp>", "ping>", "sctp>",
];
const FROM_SUBNET: &[&str] = &["http<", "dns<", "rtp<", "rtcp<", "vlan42", "ping<", "sctp<"];
/// TCP over IPv4 with a time to live above the limit.
const YOUNG4: &[&str] = &["http>", "http<", "vlan10"];

#[test]
#[ignore = "needs root: run by make test"]
fn filters() -> Result<()> {
    on_scene(1, |scene| check(scene, FILTERS))
}

#[test]
#[ignore = "needs root: run by make test"]
fn conditions() -> Result<()> {
    on_scene(1, |scene| check(scene, CONDITIONS))
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_is_beyond_pfq() -> Result<()> {
    on_scene(1, |scene| check(scene, BEYOND))
}

const FILTERS: &[Case<'_>] = &[
    (
        "main = do\n    tcp\n    steer_flow",
        &[ByFlow(&[TCP4, TCP6])],
    ),
    ("main = tcp >-> steer_flow\n", &[ByFlow(&[TCP4, TCP6])]),
    (
        "udp >-> steer_flow",
        &[ByFlow(&[WHOLE_UDP4, FRAGMENTS, &["vlan42"], UDP6])],
    ),
    ("icmp >-> steer_flow", &[ByFlow(&[ICMP4, ICMP6])]),
    ("flow >-> steer_flow", &[ByFlow(&[TCP4, TCP6, UDP4, UDP6])]),
    ("ip >-> steer_to 1", &[At(1, &IP4)]),
    (
        "inv ip >-> steer_link",
        &[Together(&IP6), Somewhere(&[NO_IP])],
    ),
    ("filter is_udp >-> steer_flow", &[ByFlow(&[UDP4, UDP6])]),
    ("l3_proto 0x806 >-> steer_link", &[Somewhere(&[NO_IP])]),
    ("l4_proto 89 >-> steer_p2p", &[Somewhere(&[&["ospf"]])]),
    (
        "vlan >-> steer_flow",
        &[Somewhere(&[&["vlan10", "vlan42"]])],
    ),
    (
        "vlan_id_filter [1,13,42,43] >-> steer_vlan",
        &[Somewhere(&[&["vlan42"]])],
    ),
    (
        "vlan_id_filter [10, 42] >-> steer_to 2",
        &[At(2, &[&["vlan10", "vlan42"]])],
    ),
    (
        "port 80 >-> steer_flow",
        &[ByFlow(&[&["http>", "http<", "old", "vlan10"]])],
    ),
    (
        "src_port 53 >-> steer_flow",
        &[ByFlow(&[&["dns<", "dns6<", "vlan42"]])],
    ),
    (
        "dst_port 53 >-> steer_flow",
        &[ByFlow(&[&["dns>", "dns6>"]])],
    ),
    (
        "addr \"192.168.0.0/24\" >-> steer_flow",
        &[ByFlow(&[TO_SUBNET, FROM_SUBNET])],
    ),
    (
        "addr (CIDR (\"192.168.0.0\",24)) >-> steer_flow",
        &[ByFlow(&[TO_SUBNET, FROM_SUBNET])],
    ),
    (
        "src_addr \"192.168.0.0/24\" >-> steer_flow",
        &[ByFlow(&[FROM_SUBNET])],
    ),
    (
        "dst_addr \"192.168.0.0/24\" >-> steer_flow",
        &[ByFlow(&[TO_SUBNET])],
    ),
    ("addr \"2001:db8:5::/48\" >-> steer_flow", &[ByFlow(&IP6)]),
    (
        "no_frag >-> udp >-> steer_flow",
        &[ByFlow(&[WHOLE_UDP4, &["vlan42"], UDP6])],
    ),
    (
        "no_more_frag >-> udp >-> steer_flow",
        &[ByFlow(&[WHOLE_UDP4, &["vlan42", "head"], UDP6])],
    ),
    ("rtp >-> steer_flow", &[ByFlow(&[&["rtp>", "rtp<"]])]),
    ("rtcp >-> steer_flow", &[ByFlow(&[&["rtcp>", "rtcp<"]])]),
    ("sip >-> steer_flow", &[Somewhere(&[&["sip"]])]),
    (
        "voip >-> steer_p2p",
        &[Together(&[&["sip", "rtp>", "rtp<", "rtcp>", "rtcp<"]])],
    ),
    (
        "bloom_filter 1024 [\"192.168.0.20\", \"192.168.0.42\"] 32 >-> steer_flow",
        &[ByFlow(&[&[
            "dns>", "dns<", "vlan42", "sip", "rtp>", "rtp<", "rtcp>", "rtcp<",
        ]])],
    ),
    (
        "bloom_dst_filter 1024 [\"192.168.0.20\"] 32 >-> steer_p2p",
        &[Together(&[&["sip", "rtp>", "rtcp>"]])],
    ),
];

const CONDITIONS: &[Case<'_>] = &[
    (
        "main = do\n    when (ip_ttl .< 64) drop\n    steer_flow",
        &[ByFlow(&[YOUNG4, UDP4, ICMP4, OTHER4, TCP6, UDP6, ICMP6])],
    ),
    (
        "main = par (when (not is_tcp) drop) (filter (ip_ttl .> 10)) >-> steer_flow",
        &[ByFlow(&IP)],
    ),
    (
        "main = conditional is_udp (steer_to 1) (steer_to 2)",
        &[At(1, &[UDP4, UDP6]), At(2, &NOT_UDP)],
    ),
    (
        "main = if is_udp then steer_to 1 else steer_to 2",
        &[At(1, &[UDP4, UDP6]), At(2, &NOT_UDP)],
    ),
    (
        "main = do\n    steer_to 0\n    when is_udp (steer_to 1)\n    unless is_ip (steer_to 2)\n    when is_eth_arp (steer_to 3)",
        &[
            At(0, &[TCP4, ICMP4, OTHER4]),
            At(1, &[UDP4]),
            At(2, &IP6),
            At(3, &[NO_IP]),
        ],
    ),
    (
        "par udp icmp >-> steer_flow",
        &[ByFlow(&[UDP4, UDP6, ICMP4, ICMP6])],
    ),
    (
        "par3 (port 443) (vlan_id_filter [10]) (l3_proto 0x806) >-> steer_to 5",
        &[At(1, &[TCP6, &["vlan10"], NO_IP])],
    ),
    (
        "par3 steer_flow steer_link (steer_to 0)",
        &[ByFlow(&IP), Somewhere(&[NO_IP])],
    ),
    (
        "main = par (tcp >-> steer_to 3) (udp >-> port 53 >-> steer_to 1)",
        &[
            At(3, &[TCP4, TCP6]),
            At(1, &[UDP6, &["dns>", "dns<", "vlan42"]]),
        ],
    ),
    (
        "filter (is_udp .&&. has_port 53 .||. is_icmp) >-> steer_to 0",
        &[At(0, &[UDP6, &["dns>", "dns<", "vlan42"], ICMP4, ICMP6])],
    ),
    (
        "filter (is_udp .^^. has_port 53) >-> steer_to 0",
        &[At(
            0,
            &[
                FRAGMENTS,
                &["sip", "rtp>", "rtp<", "rtcp>", "rtcp<", "dhcp", "vxlan"],
            ],
        )],
    ),
    (
        "filter (not (is_udp .||. is_tcp)) >-> steer_to 0",
        &[At(0, &[ICMP4, ICMP6, OTHER4, NO_IP])],
    ),
    (
        "filter (64 >. ip_ttl) >-> steer_to 0",
        &[At(0, &[&["old"]])],
    ),
    (
        "filter (udp_dest .== 53) >-> steer_to 0",
        &[At(0, &[&["dns>", "dns6>"]])],
    ),
    (
        "filter (tcp_source .== 80) >-> steer_to 0",
        &[At(0, &[&["http<"]])],
    ),
    (
        "filter (icmp_type .== 8) >-> steer_to 0",
        &[At(0, &[&["ping>"]])],
    ),
    (
        "filter (icmp_type .== 3 .&&. icmp_code .== 1) >-> steer_to 0",
        &[At(0, &[&["unreachable"]])],
    ),
    (
        "filter (ip_frag `any_bit` 0x3fff) >-> steer_to 0",
        &[At(0, &[FRAGMENTS])],
    ),
    (
        "filter is_first_frag >-> steer_to 0",
        &[At(0, &[&["head"]])],
    ),
    ("filter is_more_frag >-> steer_to 0", &[At(0, &[&["tail"]])]),
    (
        "when is_tcp (put_state 42) >-> filter (has_state 42) >-> steer_flow",
        &[ByFlow(&[TCP4, TCP6])],
    ),
    (
        "combinators = par ip (inv udp)\nmain = combinators >-> steer_to 0",
        &[At(0, &[TCP4, UDP4, ICMP4, OTHER4, TCP6, ICMP6, NO_IP])],
    ),
    (
        "mac_broadcast >-> steer_to 1",
        &[At(1, &[&["arp", "dhcp"]])],
    ),
    (
        "mac_multicast >-> steer_to 1",
        &[At(1, &[&["arp", "dhcp", "ospf"]])],
    ),
    ("ip_broadcast >-> steer_to 1", &[At(1, &[&["dhcp"]])]),
    ("ip_multicast >-> steer_to 1", &[At(1, &[&["ospf"]])]),
    (
        "main = src (addr \"10.0.0.0/24\" >-> port 40001) >-> steer_to 1",
        &[At(1, &[&["http>"]])],
    ),
];

const BEYOND: &[Case<'_>] = &[
    // In a pcap expression the tag is part of the frame, as in libpcap's own filters.
    (
        "filter \"tcp port 80\" >-> steer_flow",
        &[ByFlow(&[&["http>", "http<", "old"]])],
    ),
    (
        "filter \"vlan 10 and tcp\" >-> steer_to 1",
        &[At(1, &[&["vlan10"]])],
    ),
    (
        "filter \"vlan and udp port 53\" >-> steer_to 1",
        &[At(1, &[&["vlan42"]])],
    ),
    ("filter \"ip6\" >-> steer_to 1", &[At(1, &IP6)]),
    (
        "filter \"arp or icmp\" >-> steer_to 1",
        &[At(1, &[NO_IP, ICMP4])],
    ),
    (
        "filter \"len > 90\" >-> steer_to 1",
        &[At(1, &[&["head", "vxlan"]])],
    ),
    (
        "inner (port 80) >-> steer_to 1",
        &[At(1, &[&["http>", "http<", "old", "vlan10", "vxlan"]])],
    ),
    ("filter has_inner >-> steer_to 2", &[At(2, &[&["vxlan"]])]),
    ("main = inner steer_flow", &[ByFlow(&IP)]),
    ("ip6 >-> steer_to 3", &[At(3, &IP6)]),
    ("sctp >-> steer_flow", &[Together(&[&["sctp>", "sctp<"]])]),
    ("vlan_or_untagged >-> steer_to 3", &[At(3, &ALL)]),
    (
        "filter (udp_dest `is_in` [4000..5060, 53]) >-> steer_to 0",
        &[At(0, &[&["dns>", "dns6>", "head", "sip", "vxlan"]])],
    ),
];
