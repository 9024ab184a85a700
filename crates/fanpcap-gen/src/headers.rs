//! Writes all headers: each layer around its payload, with the lengths.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::Sum;

/// Ethernet's type of IPv4.
pub const IPV4: u16 = 0x0800;
/// Ethernet's type of IPv6.
pub const IPV6: u16 = 0x86dd;
/// IP's protocol number of TCP.
pub const TCP: u8 = 6;
/// IP's protocol number of UDP.
pub const UDP: u8 = 17;
/// IP's protocol number of IPv6's fragment header.
pub const FRAGMENT: u8 = 44;
/// IPv4's flag of a datagram that must not be fragmented, in the fragment offset field.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// IPv4's flag of a fragment that is not the last, in the fragment offset field.
pub const MORE_FRAGMENTS: u16 = 0x2000;

/// An Ethernet frame.
pub fn ethernet(destination: [u8; 6], source: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &kind.to_be_bytes(), payload].concat()
}

/// The bytes after a VLAN tag's type: the VLAN's number, the next type and the payload.
pub fn tag(vlan: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&vlan.to_be_bytes()[..], &kind.to_be_bytes(), payload].concat()
}

/// An IPv4 header without options (RFC 791), with a correct checksum.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4 {
    /// Sender and receiver.
    pub ends: (Ipv4Addr, Ipv4Addr),
    /// The protocol of the payload.
    pub protocol: u8,
    /// The number that all fragments of a datagram share.
    pub identification: u16,
    /// Flags, and the offset in units of eight bytes.
    pub fragment: u16,
}

impl Ipv4 {
    const LEN: usize = 20;

    /// Writes the header at the beginning of its packet.
    pub(crate) fn write(&self, packet: &mut [u8]) {
        let (source, destination) = self.ends;
        put(packet, 0, &[0x45, 0]);
        put(packet, 2, &short(packet.len()));
        put(packet, 4, &self.identification.to_be_bytes());
        put(packet, 6, &self.fragment.to_be_bytes());
        put(packet, 8, &[64, self.protocol, 0, 0]);
        put(packet, 12, &source.octets());
        put(packet, 16, &destination.octets());
        seal(packet);
    }

    /// The packet with this payload.
    pub fn around(&self, payload: &[u8]) -> Vec<u8> {
        let mut packet = [&[0; Self::LEN], payload].concat();
        self.write(&mut packet);
        packet
    }
}

/// Writes the checksum of an IPv4 header, including its options.
pub fn seal(packet: &mut [u8]) {
    let len = packet
        .first()
        .map_or(0, |first| usize::from(first & 15) * 4);
    put(packet, 10, &[0, 0]);
    let header = packet.get(..len).unwrap_or_default();
    let checksum = Sum::default().bytes(header).checksum();
    put(packet, 10, &checksum.to_be_bytes());
}

/// An IPv6 header, followed by the fragment header if the packet is a fragment (RFC 8200).
#[derive(Clone, Copy, Debug)]
pub struct Ipv6 {
    /// Sender and receiver.
    pub ends: (Ipv6Addr, Ipv6Addr),
    /// The protocol of the payload.
    pub protocol: u8,
    /// The number that all fragments of a datagram share, the offset in bytes, and whether more
    /// fragments follow; `None` if the packet is not a fragment.
    pub fragment: Option<(u32, u16, bool)>,
}

impl Ipv6 {
    const LEN: usize = 40;

    /// The length of the headers, in bytes.
    pub(crate) fn len(&self) -> usize {
        Self::LEN + if self.fragment.is_some() { 8 } else { 0 }
    }

    /// Writes the headers at the beginning of their packet.
    pub(crate) fn write(&self, packet: &mut [u8]) {
        let (source, destination) = self.ends;
        let next = self.fragment.map_or(self.protocol, |_| FRAGMENT);
        put(packet, 0, &[0x60, 0, 0, 0]);
        put(packet, 4, &short(packet.len() - Self::LEN));
        put(packet, 6, &[next, 64]);
        put(packet, 8, &source.octets());
        put(packet, 24, &destination.octets());
        if let Some((identification, offset, more)) = self.fragment {
            put(packet, 40, &[self.protocol, 0]);
            put(packet, 42, &(offset | u16::from(more)).to_be_bytes());
            put(packet, 44, &identification.to_be_bytes());
        }
    }

    /// The packet with this payload.
    pub fn around(&self, payload: &[u8]) -> Vec<u8> {
        let mut packet = [&vec![0; self.len()], payload].concat();
        self.write(&mut packet);
        packet
    }
}

/// A UDP datagram between two ports, without a checksum (RFC 768).
pub fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut datagram = [&[0; 8], payload].concat();
    write_udp(ports, payload.len() + 8, &mut datagram);
    datagram
}

/// Writes a UDP header before a payload; `len` is the length of header and payload together, over
/// all fragments.
pub(crate) fn write_udp(ports: (u16, u16), len: usize, datagram: &mut [u8]) {
    put(datagram, 0, &ports.0.to_be_bytes());
    put(datagram, 2, &ports.1.to_be_bytes());
    put(datagram, 4, &short(len));
    put(datagram, 6, &[0, 0]);
}

/// A TCP header without options or checksum (RFC 9293).
#[derive(Clone, Copy, Debug)]
pub struct Tcp {
    /// Sender and receiver.
    pub ports: (u16, u16),
    /// Sequence number and acknowledgment number.
    pub numbers: (u32, u32),
    /// The flags: PSH is 8, ACK is 16.
    pub flags: u8,
    /// The window.
    pub window: u16,
}

impl Tcp {
    /// Writes the header at the beginning of its segment.
    pub(crate) fn write(&self, segment: &mut [u8]) {
        put(segment, 0, &self.ports.0.to_be_bytes());
        put(segment, 2, &self.ports.1.to_be_bytes());
        put(segment, 4, &self.numbers.0.to_be_bytes());
        put(segment, 8, &self.numbers.1.to_be_bytes());
        put(segment, 12, &[0x50, self.flags]);
        put(segment, 14, &self.window.to_be_bytes());
        put(segment, 16, &[0; 4]);
    }

    /// The segment with this payload.
    pub fn around(&self, payload: &[u8]) -> Vec<u8> {
        let mut segment = [&[0; 20], payload].concat();
        self.write(&mut segment);
        segment
    }
}

/// Writes the checksum of TCP or UDP into a segment between these addresses.
pub fn complete(ends: (IpAddr, IpAddr), protocol: u8, segment: &mut [u8]) {
    let checksum = checksum(ends, protocol, segment.len(), &[segment]);
    put(segment, checksum_at(protocol), &checksum);
}

/// The offset of the checksum in a TCP or UDP header.
pub(crate) fn checksum_at(protocol: u8) -> usize {
    if protocol == TCP { 16 } else { 6 }
}

/// The checksum of a segment of `len` bytes, given in pieces. In UDP, 0 means that there is no
/// checksum, so a checksum of 0 is sent as 0xffff (RFC 768).
pub(crate) fn checksum(
    ends: (IpAddr, IpAddr),
    protocol: u8,
    len: usize,
    pieces: &[&[u8]],
) -> [u8; 2] {
    let numbers = usize::from(protocol) + len;
    let mut sum = Sum::default().number(numbers);
    for address in [ends.0, ends.1] {
        sum = match address {
            IpAddr::V4(address) => sum.bytes(&address.octets()),
            IpAddr::V6(address) => sum.bytes(&address.octets()),
        };
    }
    let sum = pieces.iter().fold(sum, |sum, piece| sum.bytes(piece));
    match sum.checksum() {
        0 if protocol == UDP => [255, 255],
        checksum => checksum.to_be_bytes(),
    }
}

pub(crate) fn put(bytes: &mut [u8], at: usize, content: &[u8]) {
    bytes[at..at + content.len()].copy_from_slice(content);
}

/// A length as a 16-bit header field.
pub(crate) fn short(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}
