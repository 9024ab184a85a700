//! Writes steering functions in the language.

use std::net::Ipv6Addr;

use fanpcap_steer::ir::{Field, Flow, Key, Net, Ports, Steer};

pub(super) fn text(steer: &Steer) -> String {
    let name = match steer {
        Steer::Flow(by) => return flow(*by),
        Steer::Link => "steer_link",
        Steer::Vlan => "steer_vlan",
        Steer::RoundRobin => "steer_rrobin",
        Steer::Random => "steer_rnd",
        Steer::Cpu => "steer_cpu",
        Steer::Rss => "steer_rss",
        Steer::To(number) => return format!("steer_to {number}"),
        Steer::Field(Field { offset, len }) => return format!("steer_field {offset} {len}"),
        Steer::Fields(one, other) => return fields("steer_field_symmetric", *one, *other),
        Steer::LocalIp(local) => return format!("steer_local_ip {}", net(*local)),
        Steer::LocalNet(local, bits) => {
            let Net { address, bits: of } = local;
            return format!("steer_local_net \"{address}\" {of} {bits}");
        }
        Steer::LocalLink(gateway) => return format!("steer_local_link \"{}\"", ethernet(*gateway)),
        Steer::Key(fields) => return format!("steer_key {}", key(*fields)),
        Steer::DoubleLink => "double_steer_mac",
        Steer::DoubleIp => "double_steer_ip",
        Steer::DoubleField(one, other) => return fields("double_steer_field", *one, *other),
        Steer::Media => "steer_rtp",
        Steer::Gtp => "steer_gtp",
    };
    name.to_owned()
}

fn flow(flow: Flow) -> String {
    let name = match (flow.ports, flow.protocol, flow.vlan) {
        (Ports::None, false, false) => "steer_p2p",
        (Ports::Tcp, true, false) => "steer_flow_tcp_5_tuple",
        (Ports::All, false, false) => "steer_flow",
        (Ports::All, true, false) => "steer_flow_5_tuple",
        (Ports::All, true, true) => "steer_flow_6_tuple",
        // No function of the language has this key.
        (ports, protocol, vlan) => {
            return format!(
                "steer_flow {{- ports: {ports:?}, protocol: {protocol}, vlan: {vlan} -}}"
            );
        }
    };
    name.to_owned()
}

fn fields(name: &str, one: Field, other: Field) -> String {
    format!("{name} {} {} {}", one.offset, other.offset, one.len)
}

/// The network as a string.
pub(super) fn net(net: Net) -> String {
    let whole = if net.address.is_ipv4() {
        32
    } else {
        Ipv6Addr::BITS
    };
    if u32::from(net.bits) == whole {
        format!("\"{}\"", net.address)
    } else {
        format!("\"{}/{}\"", net.address, net.bits)
    }
}

fn ethernet(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

/// The names of a key's fields, in order, as a string.
pub(super) fn key(key: Key) -> String {
    let names = KEYS.iter().filter(|(field, _)| key.has(*field));
    let names: Vec<&str> = names.map(|(_, name)| *name).collect();
    format!("\"{}\"", names.join(","))
}

const KEYS: [(Key, &str); 13] = [
    (Key::ETHER_TYPE, "eth_type"),
    (Key::LINK_SOURCE, "eth_src"),
    (Key::LINK_DESTINATION, "eth_dst"),
    (Key::IP_SOURCE, "ip_src"),
    (Key::IP_DESTINATION, "ip_dst"),
    (Key::PROTOCOL, "ip_proto"),
    (Key::ECN, "ip_ecn"),
    (Key::DSCP, "ip_dscp"),
    (Key::SOURCE_PORT, "src_port"),
    (Key::DESTINATION_PORT, "dst_port"),
    (Key::ICMP_TYPE, "icmp_type"),
    (Key::ICMP_CODE, "icmp_code"),
    (Key::VLAN, "vlan"),
];
