//! Draws packets that other packets carry.

use fanpcap_gen::headers;

use super::link::{ethernet, labels, service_header, untyped};
use super::network::{self, ip};
use crate::{Draw, pools};

/// Draws a UDP header and the header and content of a tunnel after it.
pub(super) fn in_udp(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let (port, payload) = match draw.weighted(&[30, 30, 40, 10, 20, 20, 20, 30]) {
        0 => (draw.pick(&[4789, 8472]), vxlan(draw, depth)),
        1 => (6081, geneve(draw, depth)),
        2 => (2152, gtp(draw, depth)),
        3 => (2123, draw.bytes(12)),
        4 => (4790, vxlan_gpe(draw, depth)),
        5 => (37_008, tzsp(draw, depth)),
        6 => (5247, capwap(draw, depth)),
        _ => (1701, l2tp(draw, depth)),
    };
    let other = pools::port(draw);
    // Some packets have the tunnel's port as their source port. The walk recognizes CAPWAP and L2TP
    // by the source port too, and steering recognizes GTP by it.
    let ports = if draw.one_in(10) {
        (port, other)
    } else {
        (other, port)
    };
    headers::udp(ports, &payload)
}

fn vxlan(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let flags = if draw.one_in(12) { 0 } else { 0x08 };
    let mut packet = vec![flags, 0, 0, 0, 0, 0, draw.byte(), 0];
    packet.extend(ethernet(draw, depth));
    packet
}

fn geneve(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let options = draw.pick(&[0, 1, 2, 63]);
    let version = if draw.one_in(12) { 0x40 } else { 0 };
    let (protocol, inside): (u16, _) = match draw.weighted(&[40, 20, 20, 4]) {
        0 => (0x6558, ethernet(draw, depth)),
        1 => (0x0800, network::v4(draw, depth)),
        2 => (0x86dd, network::v6(draw, depth)),
        _ => (pools::ether_type(draw), draw.bytes(40)),
    };
    let mut packet = vec![version | options, 0];
    packet.extend(protocol.to_be_bytes());
    packet.extend([0, 0, draw.byte(), 0]);
    packet.extend(vec![0; usize::from(options) * 4]);
    packet.extend(inside);
    packet
}

fn gtp(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let extensions = draw.weighted(&[50, 14, 10, 8, 8, 10]);
    let flags = match extensions {
        0 => draw.pick(&[0x30, 0x32, 0x31, 0x33]),
        _ => 0x34,
    };
    let first = if draw.one_in(20) { draw.byte() } else { flags };
    let kind = if draw.one_in(12) { 1 } else { 255 };
    let mut packet = vec![first, kind, 0, 0, 0, 0, 0, draw.byte()];
    if flags & 7 != 0 {
        let next = if extensions == 0 {
            draw.pick(&[0, 0x85])
        } else {
            0x85
        };
        packet.extend([0, 0, 0, next]);
    }
    for left in (0..extensions).rev() {
        // In some extension headers the length is 0.
        let units = if draw.one_in(20) {
            0
        } else {
            1 + draw.below(2)
        };
        let next = if left == 0 { 0 } else { 0x85 };
        packet.push(u8::try_from(units).unwrap_or(0));
        packet.extend(draw.bytes((units * 4).saturating_sub(2)));
        packet.push(next);
    }
    packet.extend(untyped(draw, depth));
    packet
}

fn vxlan_gpe(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let flags = draw.pick(&[0x0c, 0x0c, 0x0c, 0x08, 0x0d, 0x1c]);
    let (next, inside) = match draw.below(5) {
        0 => (1, network::v4(draw, depth)),
        1 => (2, network::v6(draw, depth)),
        2 => (3, ethernet(draw, depth)),
        3 => (4, service_header(draw, depth)),
        _ => (draw.pick(&[5, 3]), ethernet(draw, depth)),
    };
    let mut packet = vec![flags, 0, 0, next, 0, 0, draw.byte(), 0];
    packet.extend(inside);
    packet
}

fn tzsp(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let mut packet = vec![1, draw.pick(&[0, 1, 0, 1, 4]), 0, draw.pick(&[1, 1, 1, 18])];
    for _ in 0..draw.weighted(&[30, 20, 10, 5, 5, 5]) {
        match draw.below(3) {
            0 => packet.push(0),
            _ => {
                let len = draw.pick(&[1, 4, 0]);
                packet.extend([draw.pick(&[10, 41]), len]);
                packet.extend(draw.bytes(len.into()));
            }
        }
    }
    packet.push(1);
    packet.extend(ethernet(draw, depth));
    packet
}

fn capwap(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let words: u8 = draw.pick(&[2, 2, 4]);
    let preamble = draw.pick(&[0, 0, 0, 0, 1]);
    let binding = draw.pick(&[2, 2, 2, 3]);
    let flags = draw.pick(&[0, 0, 0x10, 0x20, 0x80, 0x08]);
    let mut packet = vec![preamble, words << 3, binding, flags];
    packet.extend(draw.bytes(usize::from(words - 1) * 4));
    packet.extend(ethernet(draw, depth));
    packet
}

fn l2tp(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    if draw.one_in(2) {
        let header: u16 = draw.pick(&[3, 3, 3, 0x8003]);
        let mut packet = header.to_be_bytes().to_vec();
        packet.extend([0, 0]);
        packet.extend(l2tp_session(draw, depth));
        return packet;
    }
    let flags: u16 = draw.pick(&[0x0002, 0x4002, 0x0802, 0x4802, 0x0202, 0x8002]);
    let mut packet = flags.to_be_bytes().to_vec();
    let fields = usize::from(flags & 0x4000 != 0) * 2 + usize::from(flags & 0x0800 != 0) * 4;
    packet.extend(draw.bytes(4 + fields));
    let (family, inside) = ip(draw, depth);
    let protocol = if family == 4 { 0x21 } else { 0x57 };
    let ppp: &[u8] = match draw.below(4) {
        0 => &[0, protocol],
        1 => &[protocol],
        2 => &[0xff, 3, protocol],
        _ => &[0xff, 3, 0, protocol],
    };
    packet.extend(ppp);
    packet.extend(inside);
    packet
}

fn l2tp_session(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let mut packet = vec![0, 0, 0, draw.pick(&[7, 7, 7, 0])];
    packet.extend(untyped(draw, depth));
    packet
}

/// Draws a tunnel directly over IP, such as IPIP or GRE. Returns its protocol number, and the bytes
/// after the IP header.
pub(super) fn in_ip(draw: &mut Draw<'_>, depth: usize) -> (u8, Vec<u8>) {
    match draw.weighted(&[10, 10, 60, 10, 10, 10]) {
        0 => (4, network::v4(draw, depth)),
        1 => (41, network::v6(draw, depth)),
        3 => (137, labels(draw, depth)),
        4 => (143, ethernet(draw, depth)),
        5 => (115, l2tp_session(draw, depth)),
        _ => (47, gre(draw, depth)),
    }
}

fn gre(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let (protocol, inside): (u16, _) = match draw.weighted(&[20, 16, 14, 10, 16, 16, 4]) {
        0 => (0x0800, network::v4(draw, depth)),
        1 => (0x86dd, network::v6(draw, depth)),
        2 => (0x6558, ethernet(draw, depth)),
        3 => (draw.pick(&[0x8847, 0x8848]), labels(draw, depth)),
        4 => (0x88be, Vec::new()),
        5 => (0x22eb, erspan_iii(draw, depth)),
        _ => (pools::ether_type(draw), draw.bytes(40)),
    };
    let mut flags: u16 = draw.pick(&[0, 0x2000, 0x1000, 0x3000, 0xb000, 0x8000]);
    let inside = match protocol {
        // If GRE has a sequence number, ERSPAN has a header of its own.
        0x88be if flags & 0x1000 != 0 => {
            [&[0x10, 1, 0, 5, 0, 0, 0, 0], &*ethernet(draw, depth)].concat()
        }
        0x88be => ethernet(draw, depth),
        _ => inside,
    };
    let fields = [0x8000, 0x2000, 0x1000].map(|flag| usize::from(flags & flag != 0));
    // Some GRE headers have the routing flag, or another version.
    if draw.one_in(20) {
        flags |= draw.pick(&[0x4000, 1]);
    }
    let mut packet = flags.to_be_bytes().to_vec();
    packet.extend(protocol.to_be_bytes());
    packet.extend(draw.bytes(4 * fields.iter().sum::<usize>()));
    packet.extend(inside);
    packet
}

fn erspan_iii(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let optional = draw.one_in(2);
    let mut packet = vec![0x20, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, u8::from(optional)];
    if optional {
        packet.extend(draw.bytes(8));
    }
    packet.extend(ethernet(draw, depth));
    packet
}
