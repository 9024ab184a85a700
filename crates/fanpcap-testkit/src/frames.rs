//! Builds frames layer by layer, from 10.0.0.1 to 10.0.0.2 or from 2001:db8::1 to 2001:db8::2.

use std::net::{Ipv4Addr, Ipv6Addr};

pub use fanpcap_gen::headers::tag;
use fanpcap_gen::headers::{self, Ipv4, Ipv6, Tcp};

/// The destination address of frames.
pub const MAC_DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The source address of frames.
pub const MAC_SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The receiver of IPv4 packets.
pub const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The sender of IPv4 packets.
pub const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// A TCP header from port 8080 to port 80. Its length field says 24 bytes, but the header has only
/// 20.
pub const TCP: [u8; 20] = [
    0x1f, 0x90, 0, 80, 0, 0, 0, 7, 0, 0, 0, 0, 0x60, 0x12, 0, 0, 0, 0, 0, 0,
];

/// An Ethernet frame.
pub fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    headers::ethernet(MAC_DESTINATION, MAC_SOURCE, kind, payload)
}

/// An IPv4 packet with these flags and offset. The identification is 0x1234. The type of service is
/// 0xb8. The checksum is right.
pub fn v4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4 {
        ends: (SOURCE, DESTINATION),
        protocol,
        identification: 0x1234,
        fragment,
    };
    let mut packet = header.around(payload);
    packet[1] = 0xb8;
    headers::seal(&mut packet);
    packet
}

/// An IPv6 packet of traffic class 0xb8.
pub fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let address = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
    let header = Ipv6 {
        ends: (address(1), address(2)),
        protocol: next,
        fragment: None,
    };
    let mut packet = header.around(payload);
    packet[..2].copy_from_slice(&[0x6b, 0x80]);
    packet
}

/// IPv6's fragment header with the identification 0x5678. `field` has the offset and the flag.
pub fn fragment(next: u8, field: u16, payload: &[u8]) -> Vec<u8> {
    let [a, b] = field.to_be_bytes();
    [&[next, 0, a, b, 0, 0, 0x56, 0x78][..], payload].concat()
}

/// A UDP datagram.
pub fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    headers::udp((source, destination), payload)
}

/// A TCP SYN with the sequence number 0.
pub fn tcp(source: u16, destination: u16) -> Vec<u8> {
    let header = Tcp {
        ports: (source, destination),
        numbers: (0, 0),
        flags: 2,
        window: 0,
    };
    header.around(&[])
}
