//! Ethernet frames, with tags, PPPoE, MPLS, ARP.

use super::network::{self, ip};
use crate::{Draw, pools};

/// A frame with a payload; `depth` packets may be inside each other.
pub(super) fn ethernet(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let mut frame = [pools::link(draw), pools::link(draw)].concat();
    // One more than the walk passes over, with the one beside the frame even two.
    for _ in 0..draw.weighted(&[60, 16, 10, 4, 4, 4]) {
        let tpid: u16 = draw.pick(&[0x8100, 0x88a8, 0x9100]);
        let tci = pools::vlan(draw) | draw.pick(&[0, 0x2000, 0xf000]);
        frame.extend(tpid.to_be_bytes());
        frame.extend(tci.to_be_bytes());
    }
    let (ether_type, payload) = payload(draw, depth);
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

fn payload(draw: &mut Draw<'_>, depth: usize) -> (u16, Vec<u8>) {
    match draw.weighted(&[90, 60, 14, 14, 8, 8]) {
        0 => (0x0800, network::v4(draw, depth)),
        1 => (0x86dd, network::v6(draw, depth)),
        2 => (draw.pick(&[0x8847, 0x8848]), labels(draw, depth)),
        3 => (0x8864, pppoe(draw, depth)),
        4 => (0x0806, arp(draw)),
        _ => (pools::ether_type(draw), draw.bytes(46)),
    }
}

/// A label stack and what it carries.
pub(super) fn labels(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let count = 1 + draw.weighted(&[40, 30, 10, 5, 5, 10, 10, 5]);
    let mut stack = Vec::new();
    for label in 1..=count {
        // Once in a while the bottom is not told, or too early.
        let is_bottom = (label == count) != draw.one_in(40);
        let entry = (u32::from(draw.u16()) << 12) | (u32::from(is_bottom) << 8) | 64;
        stack.extend(entry.to_be_bytes());
    }
    stack.extend(ip(draw, depth).1);
    stack
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
