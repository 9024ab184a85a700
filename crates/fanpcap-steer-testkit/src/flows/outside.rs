//! Encapsulations of a conversation's packet: frames, tags, labels, and the tunnels' own packets.

use std::net::{Ipv4Addr, Ipv6Addr};

use fanpcap_gen::headers::{self, Ipv4, Ipv6};

use super::{Talk, short, turned};

/// Two hosts' Ethernet addresses.
pub(super) type Links = [[u8; 6]; 2];

const PLAIN: Links = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

pub(super) fn ip_type(talk: &Talk) -> u16 {
    match talk.packet.first().map(|first| first >> 4) {
        Some(6) => 0x86dd,
        _ => 0x0800,
    }
}

/// A frame between these two hosts, in the direction of the packet. `typed` is the Ethernet type
/// and the payload.
pub(super) fn between(links: Links, talk: &Talk, typed: &[u8]) -> Vec<u8> {
    let (from, to) = turned(talk.is_answer, links.into());
    [&to[..], &from, typed].concat()
}

/// An Ethernet type, and the payload that it announces.
pub(super) fn typed(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], payload].concat()
}

/// The packet in the plain frame that its sender sends.
pub(super) fn frame(talk: &Talk) -> Vec<u8> {
    frame_of(PLAIN, talk)
}

pub(super) fn frame_of(links: Links, talk: &Talk) -> Vec<u8> {
    between(links, talk, &typed(ip_type(talk), &talk.packet))
}

/// The packet's frame with these bytes between the addresses and the Ethernet type.
pub(super) fn tagged(talk: &Talk, tags: &[u8]) -> Vec<u8> {
    let typed = typed(ip_type(talk), &talk.packet);
    between(PLAIN, talk, &[tags, &typed].concat())
}

/// A frame of the carrying network. It always goes from the same router to the same other router,
/// whatever the direction of the carried packet.
pub(super) fn carried(kind: u16, payload: &[u8]) -> Vec<u8> {
    headers::ethernet([2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2], kind, payload)
}

/// MPLS labels before the bytes `behind`. The last label differs by direction.
pub(super) fn labels(talk: &Talk, behind: &[u8]) -> Vec<u8> {
    let last = [0, 0x0c, 0x81 | (u8::from(talk.is_answer) << 4), 64];
    [&[0, 6, 0x40, 64][..], &last, behind].concat()
}

/// Both ends of a tunnel in the direction of the packet: the source is the tunnel's end on the
/// sender's side.
fn ends(talk: &Talk) -> (Ipv4Addr, Ipv4Addr) {
    let [one, other] = [1, 2].map(|last| Ipv4Addr::new(192, 0, 2, last));
    turned(talk.is_answer, (one, other))
}

pub(super) fn in_ip(talk: &Talk, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4 {
        ends: ends(talk),
        protocol,
        identification: 7,
        fragment: 0,
    };
    carried(0x0800, &header.around(payload))
}

/// The payload in an IPv6 packet. Its destination is a segment (SRv6), which differs by direction.
pub(super) fn in_segment(talk: &Talk, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let way = 1 + u16::from(talk.is_answer);
    let header = Ipv6 {
        ends: (
            Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, way),
            Ipv6Addr::new(0xfc00, 0, way, 0, 0, 0, 0, 1),
        ),
        protocol,
        fragment: None,
    };
    carried(0x86dd, &header.around(payload))
}

/// The payload in UDP to this port. The source port differs by flow and direction.
pub(super) fn in_udp(talk: &Talk, port: u16, payload: &[u8]) -> Vec<u8> {
    let from = 49_152 + short(talk.flow * 2 + usize::from(talk.is_answer));
    in_ip(talk, 17, &headers::udp((from, port), payload))
}

/// The payload in UDP between the client port 40000 and the server port `port`, in the direction of
/// the packet.
pub(super) fn in_session(talk: &Talk, port: u16, payload: &[u8]) -> Vec<u8> {
    let ports = turned(talk.is_answer, (40_000, port));
    in_ip(talk, 17, &headers::udp(ports, payload))
}

pub(super) fn in_gre(talk: &Talk, header: &[u8], payload: &[u8]) -> Vec<u8> {
    in_ip(talk, 47, &[header, payload].concat())
}

/// The number by which NSH and VXLAN-GPE announce the packet's IP version as the next protocol.
pub(super) fn next(talk: &Talk) -> u8 {
    if ip_type(talk) == 0x0800 { 1 } else { 2 }
}

/// An NSH header of this many words.
pub(super) fn service(words: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let context = vec![0; usize::from(words - 2) * 4];
    [
        &[0x0f, 0xc0 | words, 1, next, 0, 0, 5, 255][..],
        &context,
        payload,
    ]
    .concat()
}

/// The protocol number of PPP for the packet's IP version.
pub(super) fn ppp(talk: &Talk) -> u8 {
    if ip_type(talk) == 0x0800 { 0x21 } else { 0x57 }
}

/// A frame of 802.11 from a station to its access point, or back.
pub(super) fn wireless(talk: &Talk) -> Vec<u8> {
    let way = if talk.is_answer { 2 } else { 1 };
    let head = [
        &[0x08, way, 0, 0][..],
        &[2, 0, 0, 0, 9, 9].repeat(3),
        &[0, 0],
    ]
    .concat();
    let kind = ip_type(talk).to_be_bytes();
    [&head[..], &[0xaa, 0xaa, 3, 0, 0, 0], &kind, &talk.packet].concat()
}
