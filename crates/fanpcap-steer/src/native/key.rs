//! The hash of a key's fields.

use std::net::IpAddr;

use fanpcap_wire::Layers;

use super::address;
use crate::hash;
use crate::ir::Key;

/// The hash of the fields, folded into `start`; `None` if the packet lacks a field.
pub(super) fn hash_of(layers: &Layers<'_>, key: Key, start: u64) -> Option<u32> {
    let mut sum = start;
    for (field, fold) in FIELDS {
        if key.has(field) {
            sum = fold(layers, sum)?;
        }
    }
    Some(hash::finish(sum))
}

type Fold = fn(&Layers<'_>, u64) -> Option<u64>;

/// The fields in the order of hashing.
const FIELDS: [(Key, Fold); 13] = [
    (Key::ETHER_TYPE, |layers, sum| {
        number(sum, layers.ether_type())
    }),
    (Key::LINK_SOURCE, |layers, sum| {
        number(sum, Some(address::link(layers.link()?.source())))
    }),
    (Key::LINK_DESTINATION, |layers, sum| {
        number(sum, Some(address::link(layers.link()?.destination())))
    }),
    (Key::IP_SOURCE, |layers, sum| {
        Some(ip(sum, layers.ip()?.source()))
    }),
    (Key::IP_DESTINATION, |layers, sum| {
        Some(ip(sum, layers.ip()?.destination()))
    }),
    (Key::PROTOCOL, |layers, sum| {
        number(sum, Some(layers.ip()?.protocol))
    }),
    (Key::ECN, |layers, sum| {
        number(sum, Some(layers.ip()?.tos() & 0x03))
    }),
    (Key::DSCP, |layers, sum| {
        number(sum, Some(layers.ip()?.tos() >> 2))
    }),
    (Key::SOURCE_PORT, |layers, sum| {
        number(sum, Some(layers.ip()?.ports()?.source))
    }),
    (Key::DESTINATION_PORT, |layers, sum| {
        number(sum, Some(layers.ip()?.ports()?.destination))
    }),
    (Key::ICMP_TYPE, |layers, sum| {
        number(sum, Some(layers.ip()?.icmp()?.kind))
    }),
    (Key::ICMP_CODE, |layers, sum| {
        number(sum, Some(layers.ip()?.icmp()?.code))
    }),
    (Key::VLAN, |layers, sum| {
        number(sum, Some(layers.tag()?.id()))
    }),
];

fn number(sum: u64, value: Option<impl Into<u64>>) -> Option<u64> {
    Some(hash::fold(sum, value?.into()))
}

fn ip(sum: u64, address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => hash::fold(sum, u32::from(address).into()),
        IpAddr::V6(address) => {
            let (high, low) = hash::halves(address.into());
            hash::fold(hash::fold(sum, high), low)
        }
    }
}
