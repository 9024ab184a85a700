//! Draws Ethernet frames, some with tags, PPPoE, MPLS or ARP.

use super::network::{self, ip};
use crate::{Draw, pools};

/// Draws a frame with a payload, in which packets are nested up to `depth` deep.
pub(super) fn ethernet(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let mut frame = [pools::link(draw), pools::link(draw)].concat();
    // A frame may have one tag more than the walk skips. Together with the tag that the kernel
    // keeps in the skb, it may have two tags more.
    for _ in 0..draw.weighted(&[60, 16, 10, 4, 4, 4]) {
        vlan(draw, &mut frame);
    }
    if draw.one_in(10) {
        makers_tag(draw, &mut frame);
        for _ in 0..draw.weighted(&[40, 20, 10, 5]) {
            vlan(draw, &mut frame);
        }
    }
    let (ether_type, payload) = payload(draw, depth);
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

fn vlan(draw: &mut Draw<'_>, frame: &mut Vec<u8>) {
    let tpid: u16 = draw.pick(&[0x8100, 0x88a8, 0x9100, 0x9200, 0x9300]);
    let tci = pools::vlan(draw) | draw.pick(&[0, 0x2000, 0xf000]);
    frame.extend(tpid.to_be_bytes());
    frame.extend(tci.to_be_bytes());
}

/// Appends a VN-Tag, a fabric's time tag, or Arista's time stamp. The time stamp has 64 or 48 bits,
/// or is of an unknown kind.
fn makers_tag(draw: &mut Draw<'_>, frame: &mut Vec<u8>) {
    let (tag, len): (&[u8], _) = match draw.below(8) {
        0 | 1 => (&[0x89, 0x26], 4),
        2 | 3 => (&[0x89, 0x88], 6),
        4 => (&[0xd2, 0x8b, 0, 1, 1, 0x11], 8),
        5 => (&[0xd2, 0x8b, 0, 1, 0, 0x20], 6),
        6 => (&[0xd2, 0x8b, 0, 1, 0, 0x30], 8),
        _ => (&[0xd2, 0x8b, 0, 2, 0, 0x10], 8),
    };
    frame.extend(tag);
    frame.extend(draw.bytes(len));
}

fn payload(draw: &mut Draw<'_>, depth: usize) -> (u16, Vec<u8>) {
    match draw.weighted(&[90, 60, 20, 14, 8, 8, 12]) {
        0 => (0x0800, network::v4(draw, depth)),
        1 => (0x86dd, network::v6(draw, depth)),
        2 => (draw.pick(&[0x8847, 0x8848]), labels(draw, depth)),
        3 => (0x8864, pppoe(draw, depth)),
        4 => (0x0806, arp(draw)),
        6 => (0x894f, service_header(draw, depth)),
        _ => (pools::ether_type(draw), draw.bytes(46)),
    }
}

/// A frame whose payload begins with MPLS labels.
pub(super) fn labelled(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let mut frame = [pools::link(draw), pools::link(draw)].concat();
    frame.extend(draw.pick(&[[0x88, 0x47], [0x88, 0x48]]));
    frame.extend(labels(draw, depth));
    frame
}

/// A stack of MPLS labels and its payload.
pub(super) fn labels(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let count = 1 + draw.weighted(&[40, 30, 10, 5, 5, 10, 10, 5]);
    let mut stack = Vec::new();
    for label in 1..=count {
        // In some stacks the last label is not marked as the bottom, or an earlier label is marked.
        let is_bottom = (label == count) != draw.one_in(40);
        let entry = (u32::from(draw.u16()) << 12) | (u32::from(is_bottom) << 8) | 64;
        stack.extend(entry.to_be_bytes());
    }
    stack.extend(untyped(draw, depth));
    stack
}

/// Draws an IP packet, or a frame with or without a control word before it. Some frames begin with
/// the hexadecimal digit 4 or 6, as IP packets do.
pub(super) fn untyped(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    if depth == 0 || draw.one_in(2) {
        return ip(draw, depth).1;
    }
    let mut frame = ethernet(draw, depth - 1);
    if let (Some(first), Some(begin)) = (frame.first_mut(), draw.pick(&[None, Some(4), Some(6)])) {
        *first = (begin << 4) | draw.pick(&[0, 5, 6, 12]);
    }
    if draw.one_in(2) {
        frame.splice(0..0, [0, 0, 0, draw.byte()]);
    }
    frame
}

/// Draws a network service header (NSH). Most of these headers have 24 bytes and the right version.
/// Others are shorter or longer, or have another version.
pub(super) fn service_header(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let words = draw.pick(&[6, 6, 6, 2, 3, 7, 1]);
    let (next, inside) = match draw.below(4) {
        0 => (1, network::v4(draw, depth)),
        1 => (2, network::v6(draw, depth)),
        2 => (3, untyped(draw, depth)),
        _ => (draw.pick(&[1, 2, 3, 4, 5]), ip(draw, depth).1),
    };
    let version = draw.pick(&[0x0f, 0x0f, 0x0f, 0x0f, 0x2f, 0x4f]);
    let mut header = vec![version, 0xc0 | words, 1, next];
    header.extend(draw.bytes(usize::from(words.max(2) - 1) * 4));
    header.extend(inside);
    header
}

fn pppoe(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let (family, packet) = ip(draw, depth);
    let told: u16 = if family == 4 { 0x0021 } else { 0x0057 };
    let protocol = if draw.one_in(10) { 0xc021 } else { told };
    let begin = if draw.one_in(10) {
        [0x11, 0xa7]
    } else {
        [0x11, 0]
    };
    let len = u16::try_from(packet.len() + 2).unwrap_or(u16::MAX);
    let mut session = begin.to_vec();
    session.extend(draw.u16().to_be_bytes());
    session.extend(len.to_be_bytes());
    session.extend(protocol.to_be_bytes());
    session.extend(packet);
    session
}

fn arp(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, draw.pick(&[1, 2])];
    for _ in 0..2 {
        packet.extend(pools::link(draw));
        packet.extend(pools::address(draw).octets());
    }
    packet
}
