//! Step 8 of the walk: packets and frames without a type in front of them, as after MPLS labels and
//! NSH, in GTP-U, and in L2TP's pseudowires.
//!
//! The first nibble may be IP's version, the first half of an Ethernet address, or 0, with which a
//! pseudowire's control word begins (RFC 4385). So bytes count as an IP packet only if the whole
//! header is consistent, and as a frame only if the frame holds such an IP packet.

use crate::link::Link;
use crate::{Ip, Ipv4, Layers};

/// The layers of the IP packet or the frame in these bytes; `cut` more bytes were not captured.
pub(crate) fn layers(bytes: &[u8], cut: usize) -> Option<Layers<'_>> {
    let packet = ip(bytes, cut).map(|ip| Layers::of_ip(Some(ip)));
    packet.or_else(|| frame(bytes, cut))
}

pub(crate) fn ip(bytes: &[u8], cut: usize) -> Option<Ip<'_>> {
    let ip = match bytes.first()? >> 4 {
        4 => Ip::v4(bytes),
        // IPv6 has no checksum, so a frame with an IP packet inside is better evidence.
        6 if frame(bytes, cut).is_none() => Ip::v6(bytes),
        _ => None,
    };
    ip.filter(|ip| agrees(ip, bytes, cut))
}

/// The layers of the frame in these bytes. A control word of 4 bytes may precede the frame.
pub(crate) fn frame(bytes: &[u8], cut: usize) -> Option<Layers<'_>> {
    let behind_word = match bytes.first()? >> 4 {
        0 => bytes.get(4..).and_then(|bytes| ethernet(bytes, cut)),
        _ => None,
    };
    behind_word.or_else(|| ethernet(bytes, cut))
}

fn ethernet(bytes: &[u8], cut: usize) -> Option<Layers<'_>> {
    let link = Link::of(bytes, None)?;
    let (bytes, ip) = link.carried()?.typed()?;
    agrees(&ip, bytes, cut).then(|| Layers::of_framed(link, ip))
}

/// Whether the packet is not longer than the bytes on the wire (the captured bytes and the bytes
/// that were cut off), and IPv4's checksum is right.
fn agrees(ip: &Ip<'_>, bytes: &[u8], cut: usize) -> bool {
    let fits = usize::try_from(ip.total_len()).is_ok_and(|len| len <= bytes.len() + cut);
    fits && ip.ipv4().is_none_or(|header| has_checksum(header, bytes))
}

/// Whether IPv4's checksum is right (RFC 1071), and the total length is not less than the header.
/// The checksum includes the options.
fn has_checksum(header: Ipv4<'_>, bytes: &[u8]) -> bool {
    let Some(words) = bytes.get(..header.len()) else {
        return false;
    };
    let sum: u32 = words
        .chunks_exact(2)
        .map(|word| {
            word.iter()
                .fold(0, |sum, byte| (sum << 8) | u32::from(*byte))
        })
        .sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff && usize::from(header.total_len()) >= header.len()
}
