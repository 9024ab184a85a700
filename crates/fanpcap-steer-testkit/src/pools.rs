//! Pools of values. Packets and programs draw their values from the same pools, so that predicates
//! are true for some packets and false for others.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::Draw;

const LINKS: [[u8; 6]; 6] = [
    [2, 0, 0, 0, 0, 1],
    [2, 0, 0, 0, 0, 2],
    [0, 0x50, 0x56, 0xab, 0xcd, 0xef],
    [0xff; 6],
    [1, 0, 0x5e, 0, 0, 0xfb],
    [0x33, 0x33, 0, 0, 0, 1],
];

const ADDRESSES: [Ipv4Addr; 7] = [
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::new(10, 0, 0, 2),
    Ipv4Addr::new(10, 0, 200, 7),
    Ipv4Addr::new(192, 168, 0, 1),
    Ipv4Addr::new(172, 16, 5, 4),
    Ipv4Addr::BROADCAST,
    Ipv4Addr::new(224, 0, 0, 251),
];

const ADDRESSES_6: [Ipv6Addr; 6] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0x8000, 0, 0, 1),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0x50, 0x56ff, 0xfeab, 0xcdef),
    Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x0a00, 1),
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
];

/// Usual ports, ports of tunnels, ports of RTP and RTCP, and port 0, which no protocol uses.
const PORTS: [u16; 20] = [
    80, 443, 53, 40960, 5004, 5005, 5006, 5007, 4789, 8472, 6081, 2152, 2123, 0, 1023, 65535, 4790,
    37008, 5247, 1701,
];

/// An Ethernet address.
pub fn link(draw: &mut Draw<'_>) -> [u8; 6] {
    if draw.one_in(16) {
        return std::array::from_fn(|_| draw.byte());
    }
    draw.pick(&LINKS)
}

/// An IPv4 address.
pub fn address(draw: &mut Draw<'_>) -> Ipv4Addr {
    if draw.one_in(8) {
        return draw.u32().into();
    }
    draw.pick(&ADDRESSES)
}

/// An IPv6 address.
pub fn address_6(draw: &mut Draw<'_>) -> Ipv6Addr {
    if draw.one_in(8) {
        let (high, low) = (draw.u64(), draw.u64());
        return ((u128::from(high) << 64) | u128::from(low)).into();
    }
    draw.pick(&ADDRESSES_6)
}

/// A port.
pub fn port(draw: &mut Draw<'_>) -> u16 {
    if draw.one_in(8) {
        return draw.u16();
    }
    draw.pick(&PORTS)
}

/// An Ethernet type, including types that the walk does not know.
pub fn ether_type(draw: &mut Draw<'_>) -> u16 {
    const TYPES: [u16; 16] = [
        0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x9100, 0x8864, 0x8847, 0x8848, 0x8863, 46, 0x88cc,
        0x8926, 0x8988, 0xd28b, 0x894f,
    ];
    if draw.one_in(12) {
        return draw.u16();
    }
    draw.pick(&TYPES)
}

/// A protocol, including protocols that the walk does not know.
pub fn protocol(draw: &mut Draw<'_>) -> u8 {
    const PROTOCOLS: [u8; 18] = [
        6, 17, 1, 58, 132, 33, 136, 47, 4, 41, 0, 43, 44, 51, 60, 50, 59, 2,
    ];
    if draw.one_in(12) {
        return draw.byte();
    }
    draw.pick(&PROTOCOLS)
}

/// A VLAN's id.
pub fn vlan(draw: &mut Draw<'_>) -> u16 {
    draw.pick(&[1, 2, 100, 0, 4095])
}

/// A small number: identification, time to live, type of service, code ...
pub fn small(draw: &mut Draw<'_>) -> u8 {
    draw.pick(&[1, 0, 2, 3, 64, 255, 0x2e, 5])
}
