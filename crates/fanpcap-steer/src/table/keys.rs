//! Keys and other values.

use super::build::{key, net, number, parameter};
use super::{Built, Described, Group, Kind};
use crate::ir::Key;

pub(super) const GROUP: Group = Group {
    title: "VALUES",
    about: "Keys are joined with <>. In a string, write their names without key_, separated by commas.",
    entries: &ENTRIES,
};

/// Name and fields of each key.
macro_rules! keys {
    ($($name:literal, $key:expr, $meaning:literal;)*) => {
        static ENTRIES: [Described; [$($name),*].len() + OTHERS.len()] = [
            $(key($name, &[], $meaning, concat!("steer_key ", $name), |_| Ok(Built::Key($key))),)*
            OTHERS[0],
            OTHERS[1],
            OTHERS[2],
        ];
    };
}

const OTHERS: [Described; 3] = [
    net(
        "CIDR",
        &[parameter("net", Kind::Pair)],
        "The net of an address and a prefix length.",
        "addr (CIDR (\"192.168.0.0\", 24))",
        |given| Ok(Built::Net(given.net()?)),
    ),
    number(
        "vlan_untag",
        &[],
        "The number 0, which in vlan_id includes frames without a tag.",
        "vlan_id_filter [vlan_untag, 5]",
        |_| Ok(Built::Number(0)),
    ),
    number(
        "vlan_anytag",
        &[],
        "-1: any tag, in vlan_id.",
        "vlan_id_filter [vlan_anytag]",
        |_| Ok(Built::Number(-1)),
    ),
];

const THREE: Key = Key::IP_SOURCE.and(Key::IP_DESTINATION).and(Key::PROTOCOL);
const FIVE: Key = THREE.and(Key::SOURCE_PORT).and(Key::DESTINATION_PORT);

keys! {
    "key_eth_type", Key::ETHER_TYPE, "The Ethernet type after the tags.";
    "key_eth_src", Key::LINK_SOURCE, "The frame's source.";
    "key_eth_dst", Key::LINK_DESTINATION, "The frame's destination.";
    "key_vlan", Key::VLAN, "The VLAN id of the outermost tag.";
    "key_ip_src", Key::IP_SOURCE, "The packet's source.";
    "key_ip_dst", Key::IP_DESTINATION, "The packet's destination.";
    "key_ip_proto", Key::PROTOCOL, "The upper protocol.";
    "key_ip_ecn", Key::ECN, "The two bits of congestion notification.";
    "key_ip_dscp", Key::DSCP, "The six bits of the differentiated services.";
    "key_src_port", Key::SOURCE_PORT, "The source port.";
    "key_dst_port", Key::DESTINATION_PORT, "The destination port.";
    "key_icmp_type", Key::ICMP_TYPE, "ICMP's or ICMPv6's type.";
    "key_icmp_code", Key::ICMP_CODE, "ICMP's or ICMPv6's code.";
    "key_3tuple", THREE, "Both addresses and the upper protocol.";
    "key_5tuple", FIVE, "Both addresses, the upper protocol and both ports.";
}
