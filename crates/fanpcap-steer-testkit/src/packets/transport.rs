//! Draws transport headers with payload.

use fanpcap_gen::headers;

use super::{Family, network};
use crate::{Draw, pools};

pub(super) fn ports(draw: &mut Draw<'_>) -> Vec<u8> {
    [pools::port(draw), pools::port(draw)]
        .map(u16::to_be_bytes)
        .concat()
}

pub(super) fn tcp(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut segment = ports(draw);
    segment.extend(draw.bytes(8));
    segment.extend([
        draw.pick(&[0x50, 0x60, 0xf0]),
        draw.pick(&[0x10, 0x02, 0x12, 0x04]),
    ]);
    segment.extend(draw.bytes(6));
    segment
}

pub(super) fn udp(draw: &mut Draw<'_>) -> Vec<u8> {
    let len = draw.below(20);
    let payload = draw.bytes(len);
    headers::udp((pools::port(draw), pools::port(draw)), &payload)
}

/// Draws RTP and RTCP packets. Some have ports, a version or a type that neither protocol uses.
pub(super) fn media(draw: &mut Draw<'_>) -> Vec<u8> {
    let (ports, kind) = match draw.weighted(&[30, 40, 10, 10]) {
        0 => ((5004, 5006), draw.pick(&[0, 0x60, 200])),
        1 => ((5005, 5007), draw.pick(&[200, 201, 204, 202, 199, 205])),
        2 => (draw.pick(&[(1024, 1024), (1022, 5004), (5004, 1022)]), 0),
        _ => (draw.pick(&[(1025, 65535), (1023, 5005), (5004, 5007)]), 200),
    };
    let version = draw.pick(&[0x80, 0x81, 0x90, 0xbf, 0x40]);
    let mut payload = vec![version, kind];
    payload.extend(draw.bytes(10));
    payload.truncate(draw.pick(&[12, 12, 12, 12, 11, 4, 3, 0]));
    headers::udp(ports, &payload)
}

/// The number of the ICMP protocol for the IP version, or sometimes for the other version.
pub(super) fn icmp_of(draw: &mut Draw<'_>, family: Family) -> u8 {
    let of = [1, 58];
    of[usize::from((family == Family::V6) != draw.one_in(16))]
}

pub(super) fn icmp(draw: &mut Draw<'_>) -> Vec<u8> {
    let kind = draw.pick(&[8, 0, 128, 129, 135, 3, 1, 255]);
    let len = draw.pick(&[6, 6, 20, 0]);
    [&[kind, pools::small(draw)], &*draw.bytes(len)].concat()
}

/// An ICMP error that quotes a packet, or only the packet's beginning.
pub(super) fn error(draw: &mut Draw<'_>, family: Family, depth: usize) -> Vec<u8> {
    let kind = match family {
        Family::V4 => draw.pick(&[3, 4, 5, 11, 12, 8, 2]),
        Family::V6 => draw.pick(&[1, 2, 3, 4, 0, 5, 128]),
    };
    let mut quote = match (family, draw.one_in(12)) {
        (Family::V4, false) | (Family::V6, true) => network::v4(draw, depth),
        (Family::V6, false) | (Family::V4, true) => network::v6(draw, depth),
    };
    // RFC 792 requires a quote of the IP header and 8 bytes.
    let len = draw.pick(&[quote.len(), 28, 48, 24, 20, 10]);
    quote.truncate(len);
    let mut message = vec![kind, pools::small(draw), 0, 0, 0, 0, 0, 0];
    message.extend(quote);
    message
}
