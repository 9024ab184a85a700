//! Datagrams as frames, whole or in fragments: all headers, the payload and the checksums.

use std::net::{IpAddr, Ipv4Addr};

use crate::description::Description;
use crate::flow::Flow;
use crate::headers::{self, IPV4, IPV6, Ipv4, Ipv6, MORE_FRAGMENTS, TCP, Tcp, UDP, put};
use crate::pool::{Frame, payload};
use crate::random::scatter;

/// The properties of one datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    pub(crate) flow: Flow,
    /// Whether the datagram is an answer, which goes from the MAC address of the flow's destination
    /// to that of its source.
    pub(crate) answer: bool,
    /// The datagram's number among all datagrams. The identifications in the IP headers are derived
    /// from this number.
    pub(crate) number: u64,
    /// The length of the frame, or of each fragment except the last.
    pub(crate) len: usize,
    /// Whether the datagram is sent as fragments.
    pub(crate) fragmented: bool,
}

/// The layers that all frames of a description have.
#[derive(Debug)]
pub(crate) struct Layers<'a> {
    description: &'a Description,
    /// The offset of the IP header that contains the flow's addresses.
    ip: usize,
    /// The bytes from which every frame is made, before its headers are written.
    pattern: Vec<u8>,
}

const MAC_LEN: usize = 14;
const VLAN_LEN: usize = 4;
/// Bytes of the IPv4, UDP and VXLAN headers before the inner frame.
const VXLAN_LEN: usize = 20 + 8 + 8;
const VXLAN_PORT: u16 = 4789;
const STAMP_LEN: usize = 8;
const TUNNEL: [Ipv4Addr; 2] = [
    Ipv4Addr::new(192, 168, 100, 1),
    Ipv4Addr::new(192, 168, 100, 2),
];
impl<'a> Layers<'a> {
    /// The layers of `description`.
    pub(crate) fn of(description: &'a Description) -> Self {
        let outer = MAC_LEN + VLAN_LEN * description.vlans.len();
        let tunnel = description.vxlan.map_or(0, |_| VXLAN_LEN + MAC_LEN);
        Self {
            description,
            ip: outer + tunnel,
            pattern: (0..usize::from(u16::MAX)).map(payload).collect(),
        }
    }

    pub(crate) fn frames(&self, datagram: &Datagram) -> Vec<Frame> {
        let transport = if datagram.flow.tcp { 20 } else { 8 };
        let data = self.ip + header_len(datagram);
        let mut frames: Vec<Frame> = Vec::new();
        let lens = piece_lens(datagram, data, transport);
        let total: usize = lens.iter().sum();
        let mut before = 0;
        for (piece, &len) in lens.iter().enumerate() {
            let mut frame = Frame {
                bytes: self.pattern[..data + len].to_vec(),
                head: data,
                stamp: None,
            };
            if piece == 0 {
                write_transport(&mut frame.bytes[data..], &datagram.flow, total, datagram);
                frame.head = data + transport;
                if self.description.stamp && len >= transport + STAMP_LEN {
                    frame.stamp = Some(frame.head);
                    let stamp = &mut frame.bytes[frame.head..frame.head + STAMP_LEN];
                    stamp.copy_from_slice(&[0, 0, 0, 0, 255, 255, 255, 255]);
                    frame.head += STAMP_LEN;
                }
            }
            let more = before + len < total;
            write_ip(&mut frame.bytes[self.ip..], datagram, before, more);
            before += len;
            frames.push(frame);
        }
        check_transport(&mut frames, data, total, datagram);
        for frame in &mut frames {
            self.write_below(&mut frame.bytes, datagram);
        }
        frames
    }

    /// Writes MAC addresses, VLAN tags and the tunnel.
    fn write_below(&self, frame: &mut [u8], datagram: &Datagram) {
        let description = self.description;
        let family = if datagram.flow.source.0.is_ipv4() {
            IPV4
        } else {
            IPV6
        };
        let (to, from) = if datagram.answer {
            (description.source_mac, description.destination_mac)
        } else {
            (description.destination_mac, description.source_mac)
        };
        let mut macs = [to, from].concat();
        if let Some(network) = description.vxlan {
            put(frame, self.ip - MAC_LEN, &macs);
            put(frame, self.ip - 2, &family.to_be_bytes());
            let outer = self.ip - MAC_LEN - VXLAN_LEN;
            write_tunnel(&mut frame[outer..], network, datagram);
        }
        let mut kinds: Vec<u16> = match description.vlans.len() {
            0 => vec![],
            1 => vec![0x8100],
            _ => vec![0x88a8, 0x8100],
        };
        kinds.push(description.vxlan.map_or(family, |_| IPV4));
        for (place, kind) in kinds.iter().enumerate() {
            macs.extend(kind.to_be_bytes());
            if let Some(vlan) = description.vlans.get(place) {
                macs.extend(vlan.to_be_bytes());
            }
        }
        put(frame, 0, &macs);
    }
}

/// The length of the IP header, including IPv6's fragment header.
fn header_len(datagram: &Datagram) -> usize {
    match (datagram.flow.source.0.is_ipv4(), datagram.fragmented) {
        (true, _) => 20,
        (false, false) => 40,
        (false, true) => 48,
    }
}

/// The lengths of the pieces after the IP header, one for each frame of the datagram. All pieces
/// except the last are multiples of eight bytes, and the first contains the whole transport header.
fn piece_lens(datagram: &Datagram, data: usize, transport: usize) -> Vec<usize> {
    let room = datagram.len.saturating_sub(data);
    if datagram.fragmented {
        let piece = room.max(transport.next_multiple_of(8)) / 8 * 8;
        vec![piece, piece, piece / 2]
    } else {
        vec![room.max(transport)]
    }
}

/// Writes the transport header, with a checksum of 0.
fn write_transport(bytes: &mut [u8], flow: &Flow, total: usize, datagram: &Datagram) {
    let ports = (flow.source.1, flow.destination.1);
    if !flow.tcp {
        return headers::write_udp(ports, total, bytes);
    }
    let [a, b, c, d, e, f, g, h] = scatter(datagram.number).to_be_bytes();
    let header = Tcp {
        ports,
        numbers: (
            u32::from_be_bytes([a, b, c, d]),
            u32::from_be_bytes([e, f, g, h]),
        ),
        flags: 0x18,
        window: 0x2000,
    };
    header.write(bytes);
}

/// Writes the transport checksum, computed over all pieces.
fn check_transport(frames: &mut [Frame], data: usize, total: usize, datagram: &Datagram) {
    let flow = &datagram.flow;
    let ends = (flow.source.0, flow.destination.0);
    let pieces: Vec<&[u8]> = frames.iter().map(|frame| &frame.bytes[data..]).collect();
    let checksum = headers::checksum(ends, protocol(flow), total, &pieces);
    if let Some(first) = frames.first_mut() {
        let place = data + headers::checksum_at(protocol(flow));
        put(&mut first.bytes, place, &checksum);
    }
}

fn protocol(flow: &Flow) -> u8 {
    if flow.tcp { TCP } else { UDP }
}

/// Writes the IP header of a piece; `before` is the number of the datagram's bytes before this
/// piece.
fn write_ip(packet: &mut [u8], datagram: &Datagram, before: usize, more: bool) {
    let flow = &datagram.flow;
    let protocol = protocol(flow);
    let [a, b, c, d, ..] = scatter(datagram.number).to_le_bytes();
    let offset = |unit| u16::try_from(before / unit).unwrap_or(0);
    match (flow.source.0, flow.destination.0) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = Ipv4 {
                ends: (from, to),
                protocol,
                identification: u16::from_be_bytes([a, b]),
                fragment: offset(8) | if more { MORE_FRAGMENTS } else { 0 },
            };
            header.write(packet);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let identification = u32::from_be_bytes([a, b, c, d]);
            let fragment = (identification, offset(1), more);
            let header = Ipv6 {
                ends: (from, to),
                protocol,
                fragment: datagram.fragmented.then_some(fragment),
            };
            header.write(packet);
        }
        // A flow's two prefixes are of the same family: the check of the description has ensured
        // this.
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {}
    }
}

/// Writes the outer IPv4, UDP and VXLAN headers. The inner frame is there already.
fn write_tunnel(packet: &mut [u8], network: u32, datagram: &Datagram) {
    let [one, other] = TUNNEL;
    let ends = if datagram.answer {
        (other, one)
    } else {
        (one, other)
    };
    let [a, b, ..] = scatter(!datagram.number).to_le_bytes();
    let header = Ipv4 {
        ends,
        protocol: UDP,
        identification: u16::from_be_bytes([a, b]),
        fragment: 0,
    };
    header.write(packet);
    let udp = &mut packet[20..];
    // The source port depends on the flow, as RFC 7348 recommends.
    let entropy = (datagram.flow.source.1 ^ datagram.flow.destination.1) | 0xc000;
    headers::write_udp((entropy, VXLAN_PORT), udp.len(), udp);
    put(udp, 8, &[0x08, 0, 0, 0]);
    put(udp, 12, &(network << 8).to_be_bytes());
    headers::complete((ends.0.into(), ends.1.into()), UDP, udp);
}
