//! Draws IPv4 and IPv6 packets, some with options or extension headers, some of them fragments.

use fanpcap_gen::headers;

use super::{Family, upper};
use crate::{Draw, pools};

/// The protocol number of an IP version, and a packet of this version.
pub(super) fn ip(draw: &mut Draw<'_>, depth: usize) -> (u8, Vec<u8>) {
    if draw.one_in(3) {
        (6, v6(draw, depth))
    } else {
        (4, v4(draw, depth))
    }
}

/// Draws a packet's fields for fragments: whether more fragments follow, and the offset in units of
/// 8 bytes. Most packets are not fragments.
fn fragmentation(draw: &mut Draw<'_>) -> (bool, u16) {
    match draw.weighted(&[80, 8, 8, 2]) {
        0 => (false, 0),
        1 => (true, 0),
        2 => (draw.one_in(2), draw.pick(&[1, 185, 0x1fff])),
        _ => (draw.one_in(2), draw.u16() & 0x1fff),
    }
}

/// Draws an IPv4 packet.
pub(super) fn v4(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let (protocol, body) = upper(draw, Family::V4, depth);
    let options = if draw.one_in(8) {
        1 + draw.below(10)
    } else {
        0
    };
    let total = u16::try_from(20 + options * 4 + body.len()).unwrap_or(u16::MAX);
    let (more, offset) = fragmentation(draw);
    let dont: u16 = draw.pick(&[0x4000, 0]);
    let field = if more {
        0x2000 | offset
    } else if offset == 0 {
        dont
    } else {
        offset
    };
    let version_and_len = 0x45 + u8::try_from(options).unwrap_or(0);
    let mut packet = vec![
        // In some packets the version is wrong, or the header's length field is too small.
        if draw.one_in(60) {
            draw.pick(&[0x44, 0x65, 0x05])
        } else {
            version_and_len
        },
        pools::small(draw),
    ];
    packet.extend(total.to_be_bytes());
    packet.extend(u16::from(draw.pick(&[1_u8, 2])).to_be_bytes());
    packet.extend(field.to_be_bytes());
    packet.extend([pools::small(draw), protocol, 0, 0]);
    packet.extend(pools::address(draw).octets());
    packet.extend(pools::address(draw).octets());
    packet.extend(draw.bytes(options * 4));
    packet.extend(body);
    // Most packets get a right checksum, because the walk requires one if no type announces the
    // packet.
    if !draw.one_in(20) {
        headers::seal(&mut packet);
    }
    packet
}

/// Draws an IPv6 packet.
pub(super) fn v6(draw: &mut Draw<'_>, depth: usize) -> Vec<u8> {
    let (mut next, mut body) = upper(draw, Family::V6, depth);
    // Up to eight extension headers: two more than the walk reads.
    for _ in 0..draw.weighted(&[70, 14, 8, 4, 3, 3, 3, 3, 1]) {
        let (number, mut header) = extension(draw, next);
        header.extend(body);
        (next, body) = (number, header);
    }
    let len = u16::try_from(body.len()).unwrap_or(u16::MAX);
    let class = pools::small(draw);
    let version = if draw.one_in(60) { 0x40 } else { 0x60 };
    let mut packet = vec![version | (class >> 4), class << 4, 0, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([next, pools::small(draw)]);
    packet.extend(pools::address_6(draw).octets());
    packet.extend(pools::address_6(draw).octets());
    packet.extend(body);
    packet
}

fn extension(draw: &mut Draw<'_>, next: u8) -> (u8, Vec<u8>) {
    let number = draw.pick(&[0, 60, 44, 43, 51, 44]);
    let units = draw.below(3);
    let said = u8::try_from(units).unwrap_or(0);
    let header = match number {
        44 => {
            let (more, offset) = fragmentation(draw);
            let field = (offset << 3) | u16::from(more);
            let mut header = vec![next, 0];
            header.extend(field.to_be_bytes());
            header.extend(u32::from(draw.pick(&[1_u8, 2])).to_be_bytes());
            header
        }
        51 => [&[next, said], &*draw.bytes((units + 2) * 4 - 2)].concat(),
        _ => [&[next, said], &*draw.bytes((units + 1) * 8 - 2)].concat(),
    };
    (number, header)
}
