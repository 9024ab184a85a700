//! Changes the addresses of captured frames, so that each loop of a replay has other flows.

use crate::checksum::updated;
use crate::headers::{IPV4, IPV6};

/// Changes the last 16 bits of an Ethernet frame's IP addresses by `turn`, and updates the
/// checksums. The same address always becomes the same new address, so flows stay flows, in both
/// directions. In 65535 consecutive turns, an address becomes a different one each time. Multicast,
/// broadcast, loopback and unspecified addresses do not change. Frames without an IP packet, or
/// with more than two VLAN tags, do not change either.
pub fn move_addresses(frame: &mut [u8], turn: u32) {
    let Some((family, ip)) = network(frame) else {
        return;
    };
    // Multiplication by an odd factor maps different numbers to different numbers, so different
    // turns have different masks.
    let mask = u16::try_from(turn.wrapping_mul(0x9e37) & 0xffff).unwrap_or(0);
    match family {
        IPV4 => move_v4(&mut frame[ip..], mask.to_be_bytes()),
        _ => move_v6(&mut frame[ip..], mask.to_be_bytes()),
    }
}

/// The IP packet's Ethernet type and offset in a frame.
fn network(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = 12;
    for _ in 0..=2 {
        let kind = u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?);
        match kind {
            IPV4 | IPV6 => return Some((kind, at + 2)),
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            _ => return None,
        }
    }
    None
}

fn move_v4(packet: &mut [u8], mask: [u8; 2]) {
    let Some(header) = packet.get(..20) else {
        return;
    };
    let header_len = usize::from(header[0] & 15) * 4;
    let later = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
    let protocol = header[9];
    let old = header[12..20].to_vec();
    let mut new = old.clone();
    for address in new.chunks_exact_mut(4) {
        // Loopback, unspecified, multicast and higher addresses stay.
        if !matches!(address[0], 0 | 127 | 224..) {
            change(&mut address[2..], mask);
        }
    }
    packet[12..20].copy_from_slice(&new);
    update(packet, 10, &old, &new);
    if !later && header_len >= 20 {
        update_transport(packet, header_len, protocol, &old, &new);
    }
}

fn move_v6(packet: &mut [u8], mask: [u8; 2]) {
    let Some(header) = packet.get(..40) else {
        return;
    };
    let old = header[8..40].to_vec();
    let mut new = old.clone();
    for address in new.chunks_exact_mut(16) {
        // Multicast, loopback and unspecified addresses stay.
        if address[0] != 0xff && address[..15].iter().any(|&byte| byte != 0) {
            change(&mut address[14..], mask);
        }
    }
    packet[8..40].copy_from_slice(&new);
    if let Some((protocol, at)) = transport6(packet) {
        update_transport(packet, at, protocol, &old, &new);
    }
}

/// The transport protocol after IPv6's extension headers, and its offset; `None` in a later
/// fragment (RFC 8200, section 4).
fn transport6(packet: &[u8]) -> Option<(u8, usize)> {
    let (mut next, mut at) = (*packet.get(6)?, 40);
    for _ in 0..8 {
        let header = || packet.get(at..at + 8);
        match next {
            0 | 43 | 60 => {
                let header = header()?;
                (next, at) = (header[0], at + 8 + 8 * usize::from(header[1]));
            }
            44 => {
                let header = header()?;
                if u16::from_be_bytes([header[2], header[3]]) & 0xfff8 != 0 {
                    return None;
                }
                (next, at) = (header[0], at + 8);
            }
            protocol => return Some((protocol, at)),
        }
    }
    None
}

fn change(bytes: &mut [u8], mask: [u8; 2]) {
    for (byte, mask) in bytes.iter_mut().zip(mask) {
        *byte ^= mask;
    }
}

/// Updates the checksums of TCP, UDP, UDP-Lite and ICMPv6, which cover the addresses.
fn update_transport(packet: &mut [u8], at: usize, protocol: u8, old: &[u8], new: &[u8]) {
    let place = match protocol {
        6 => at + 16,
        17 | 136 => at + 6,
        58 => at + 2,
        _ => return,
    };
    // In UDP, 0 means that there is no checksum.
    if protocol == 17 && packet.get(place..place + 2) == Some(&[0, 0]) {
        return;
    }
    update(packet, place, old, new);
    if protocol == 17 && packet.get(place..place + 2) == Some(&[0, 0]) {
        packet[place..place + 2].copy_from_slice(&[255, 255]);
    }
}

/// Updates a checksum, unless the packet was cut before the checksum.
fn update(packet: &mut [u8], place: usize, old: &[u8], new: &[u8]) {
    if let Some(checksum) = packet.get_mut(place..place + 2) {
        let before = u16::from_be_bytes([checksum[0], checksum[1]]);
        checksum.copy_from_slice(&updated(before, old, new).to_be_bytes());
    }
}
