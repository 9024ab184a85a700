//! The straight path for plain packets: most packets under the mode `flow` are plain, and need no
//! walk. A plain packet is TCP or UDP in IPv4 without options and fragments, or directly in IPv6,
//! directly in an Ethernet frame, and carries no packet. The BPF back end has a path for the same
//! packets.

use fanpcap_wire::number::{
    PORT_CAPWAP, PORT_GENEVE, PORT_GTP_USER, PORT_L2TP, PORT_TZSP, PORT_VXLAN, PORT_VXLAN_GPE,
    PORT_VXLAN_OLD, TCP, UDP,
};

use crate::hash;

/// The hash by which the mode `flow` steers a plain packet, whatever tag is beside it. `None` for
/// all other packets. `bytes` are the captured bytes of the frame.
#[inline]
pub fn flow_hash(bytes: &[u8]) -> Option<u32> {
    let head: &[u8; V4_LEN] = bytes.first_chunk()?;
    match [head[12], head[13]] {
        [0x08, 0x00] => v4(head),
        [0x86, 0xdd] => v6(bytes.first_chunk()?),
        _ => None,
    }
}

/// Bytes of a plain frame up to the ports.
const V4_LEN: usize = 14 + 20 + 4;
const V6_LEN: usize = 14 + 40 + 4;

#[inline]
fn v4(head: &[u8; V4_LEN]) -> Option<u32> {
    let [source, destination] = [26, 30]
        .map(|at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let is_whole = u16::from_be_bytes([head[20], head[21]]) & OFFSET_AND_MORE == 0;
    let ports = ports([head[34], head[35], head[36], head[37]]);
    let is_plain = head[14] == 0x45 && is_whole && carries_none(head[23], ports);
    is_plain.then(|| {
        let ends = [
            hash::end4(source, ports[0]),
            hash::end4(destination, ports[1]),
        ];
        hash::finish(hash::both(ends[0], ends[1]))
    })
}

/// The fragment's offset, and the flag that more fragments follow (RFC 791).
const OFFSET_AND_MORE: u16 = 0x3fff;

#[inline]
fn v6(head: &[u8; V6_LEN]) -> Option<u32> {
    let half = |at: usize| {
        let bytes = [0, 1, 2, 3, 4, 5, 6, 7].map(|index: usize| head[at + index]);
        u64::from_be_bytes(bytes)
    };
    let ports = ports([head[54], head[55], head[56], head[57]]);
    let is_plain = head[14] >> 4 == 6 && carries_none(head[20], ports);
    is_plain.then(|| {
        let source = hash::end6(half(22), half(30), ports[0]);
        let destination = hash::end6(half(38), half(46), ports[1]);
        hash::finish(hash::both(source, destination))
    })
}

fn ports([a, b, c, d]: [u8; 4]) -> [u16; 2] {
    [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
}

/// Whether a packet with this protocol and these ports is TCP, or UDP that carries no packet.
#[inline]
fn carries_none(protocol: u8, [source, destination]: [u16; 2]) -> bool {
    let is_session = |port| matches!(port, PORT_CAPWAP | PORT_L2TP);
    let is_tunnel = is_session(source)
        || is_session(destination)
        || matches!(
            destination,
            PORT_VXLAN | PORT_VXLAN_OLD | PORT_VXLAN_GPE | PORT_GENEVE | PORT_GTP_USER | PORT_TZSP
        );
    protocol == TCP || (protocol == UDP && !is_tunnel)
}
