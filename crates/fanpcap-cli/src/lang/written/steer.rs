//! Writes steering functions in the language.

use std::net::Ipv6Addr;

use fanpcap_steer::ir::{Field, Flow, Function, Key, Net, Steer};
use fanpcap_steer::table;

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the others have names without parameters"
)]
pub(super) fn text(steer: &Steer) -> String {
    if let Some(name) = table::function_name(&Function::Steer(steer.clone())) {
        return name.to_owned();
    }
    match steer {
        // No function of the language steers by these fields, so a comment names them.
        Steer::Flow(Flow {
            ports,
            protocol,
            vlan,
        }) => format!("steer_flow {{- ports: {ports:?}, protocol: {protocol}, vlan: {vlan} -}}"),
        Steer::To(number) => format!("steer_to {number}"),
        Steer::Field(Field { offset, len }) => format!("steer_field {offset} {len}"),
        Steer::Fields(one, other) => fields("steer_field_symmetric", *one, *other),
        Steer::LocalIp(local) => format!("steer_local_ip {}", net(*local)),
        Steer::LocalNet(Net { address, bits: of }, bits) => {
            format!("steer_local_net \"{address}\" {of} {bits}")
        }
        Steer::LocalLink(gateway) => format!("steer_local_link \"{}\"", ethernet(*gateway)),
        Steer::Key(fields) => format!("steer_key {}", key(*fields)),
        Steer::DoubleField(one, other) => fields("double_steer_field", *one, *other),
        _ => String::new(),
    }
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
