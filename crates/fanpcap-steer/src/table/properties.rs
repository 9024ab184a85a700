//! Properties: numbers that a packet may have.

use super::build::property;
use super::{Built, Described, Group};
use crate::ir::Property;

pub(super) const GROUP: Group = Group {
    title: "PROPERTIES",
    about: "Numbers that a packet may have, for comparisons and is_in. If a packet lacks the number, each comparison is false.",
    entries: &ENTRIES,
};

macro_rules! properties {
    ($($name:literal, $is:ident, $meaning:literal, $ipv6:literal, $example:literal;)*) => {
        static ENTRIES: [Described; [$($name),*].len()] = [
            $(property($name, &[], $meaning, $example, |_| Ok(Built::Property(Property::$is))).ipv6($ipv6)),*
        ];
    };
}

properties! {
    "eth_type", EtherType, "The Ethernet type after all VLAN tags; for 802.3 frames the length.", "", "filter (eth_type .>= 0x0600)";
    "vid", VlanId, "The VLAN id of the outermost tag.", "", "filter (vid .< 100)";
    "ip_proto", Protocol, "The upper protocol.", "The protocol after the extension headers.", "filter (ip_proto .== 47)";
    "ip_tos", Tos, "Type of service.", "Traffic class.", "when (ip_tos `any_bit` 3) (inc 0)";
    "ip_tot_len", IpLength, "Total length, bytes.", "40 and the payload's length.", "filter (ip_tot_len .<= 128)";
    "ip_id", IpId, "Identification.", "Identification in the fragment header; absent without a fragment header.", "filter (ip_id ./= 0)";
    "ip_frag", IpFragment, "Flags and fragment offset, as in the header.", "The same value, made from the fragment header; 0 without one.", "filter (ip_frag `any_bit` 0x3fff)";
    "ip_ttl", Ttl, "Time to live.", "Hop limit.", "when (ip_ttl .< 64) drop";
    "tcp_source", TcpSource, "TCP's source port.", "", "filter (tcp_source .== 80)";
    "tcp_dest", TcpDestination, "TCP's destination port.", "", "filter (1024 <=. tcp_dest)";
    "tcp_hdrlen", TcpHeaderLength, "The length of TCP's header, bytes.", "", "filter (tcp_hdrlen .> 20)";
    "udp_source", UdpSource, "UDP's source port.", "", "filter (udp_source .== 53)";
    "udp_dest", UdpDestination, "UDP's destination port.", "", "filter (udp_dest .== 53)";
    "udp_len", UdpLength, "UDP's length, bytes, as in the header.", "", "filter (udp_len .> 512)";
    "icmp_type", IcmpType, "ICMP's type.", "ICMPv6's type.", "filter (icmp_type .== 8)";
    "icmp_code", IcmpCode, "ICMP's code.", "ICMPv6's code.", "filter (icmp_code ./= 0)";
    "get_mark", Mark, "The packet's mark in the kernel; absent in the xdp engine.", "", "filter (get_mark .== 7)";
    "get_state", State, "The state that put_state has set, 0 at first.", "", "put_state 3 >-> when (get_state .> 2) (inc 0)";
    "rx_queue", Queue, "The queue that received the frame, from 0; absent if the driver did not record it.", "", "when (rx_queue .== 0) (inc 0)";
}
