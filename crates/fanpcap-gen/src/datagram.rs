//! Datagrams as frames: all headers, the payload, the checksums; whole, or in fragments.

use std::net::IpAddr;

use crate::checksum::Sum;
use crate::description::Description;
use crate::flow::Flow;
use crate::pool::{Frame, payload};
use crate::random::scatter;

/// What one datagram is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    /// Its ends.
    pub(crate) flow: Flow,
    /// It goes from the destination's MAC address to the source's.
    pub(crate) answer: bool,
    /// Its place among all; identifications come from it.
    pub(crate) number: u64,
    /// The length of its frame, or of each but the last of its fragments.
    pub(crate) len: usize,
    /// It comes as fragments.
    pub(crate) fragmented: bool,
}

/// The layers that all frames of a description have.
#[derive(Debug)]
pub(crate) struct Layers<'a> {
    description: &'a Description,
    /// Where the IP header is that the flow's addresses are in.
    ip: usize,
    /// Payload for any frame.
    pattern: Vec<u8>,
}

const MAC_LEN: usize = 14;
const VLAN_LEN: usize = 4;
/// IPv4, UDP and VXLAN before the inner frame.
const VXLAN_LEN: usize = 20 + 8 + 8;
const VXLAN_PORT: u16 = 4789;
const STAMP_LEN: usize = 8;
/// Within the headers of IPv6 and its fragment header.
const FRAGMENT: u8 = 44;
const TUNNEL: [[u8; 4]; 2] = [[192, 168, 100, 1], [192, 168, 100, 2]];
/// More fragments to come: a flag of IPv4's and of IPv6's, in their different places.
const MORE4: u16 = 0x2000;
const MORE6: u16 = 1;

impl<'a> Layers<'a> {
    /// Those of `description`.
    pub(crate) fn of(description: &'a Description) -> Self {
        let outer = MAC_LEN + VLAN_LEN * description.vlans.len();
        let tunnel = description.vxlan.map_or(0, |_| VXLAN_LEN + MAC_LEN);
        Self {
            description,
            ip: outer + tunnel,
            pattern: (0..usize::from(u16::MAX)).map(payload).collect(),
        }
    }

    /// The frames of a datagram, in order.
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

    /// MAC addresses, VLAN tags and the tunnel.
    fn write_below(&self, frame: &mut [u8], datagram: &Datagram) {
        let description = self.description;
        let family = if datagram.flow.source.0.is_ipv4() {
            0x0800_u16
        } else {
            0x86dd
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
        kinds.push(description.vxlan.map_or(family, |_| 0x0800));
        for (place, kind) in kinds.iter().enumerate() {
            macs.extend(kind.to_be_bytes());
            if let Some(vlan) = description.vlans.get(place) {
                macs.extend(vlan.to_be_bytes());
            }
        }
        put(frame, 0, &macs);
    }
}

/// The length of the IP header, with that for fragments of IPv6.
fn header_len(datagram: &Datagram) -> usize {
    match (datagram.flow.source.0.is_ipv4(), datagram.fragmented) {
        (true, _) => 20,
        (false, false) => 40,
        (false, true) => 48,
    }
}

/// What follows the IP header in each frame of the datagram. But for the last, pieces are multiples of
/// eight bytes, and the first one has the whole transport header.
fn piece_lens(datagram: &Datagram, data: usize, transport: usize) -> Vec<usize> {
    let room = datagram.len.saturating_sub(data);
    if datagram.fragmented {
        let piece = room.max(transport.next_multiple_of(8)) / 8 * 8;
        vec![piece, piece, piece / 2]
    } else {
        vec![room.max(transport)]
    }
}

/// Ports, lengths and so on, with a checksum of 0.
fn write_transport(bytes: &mut [u8], flow: &Flow, total: usize, datagram: &Datagram) {
    put(bytes, 0, &flow.source.1.to_be_bytes());
    put(bytes, 2, &flow.destination.1.to_be_bytes());
    if flow.tcp {
        let [a, b, c, d, e, f, g, h] = scatter(datagram.number).to_be_bytes();
        put(bytes, 4, &[a, b, c, d, e, f, g, h]);
        // Five words of header, PSH and ACK, a window, no checksum, nothing urgent.
        put(bytes, 12, &[0x50, 0x18, 0x20, 0, 0, 0, 0, 0]);
    } else {
        put(bytes, 4, &short(total));
        put(bytes, 6, &[0, 0]);
    }
}

/// The transport checksum, over all pieces.
fn check_transport(frames: &mut [Frame], data: usize, total: usize, datagram: &Datagram) {
    let flow = &datagram.flow;
    let mut sum = Sum::default()
        .bytes(&octets(flow.source.0))
        .bytes(&octets(flow.destination.0))
        .number(usize::from(protocol(flow)))
        .number(total);
    for frame in frames.iter() {
        sum = sum.bytes(&frame.bytes[data..]);
    }
    let place = data + if flow.tcp { 16 } else { 6 };
    let checksum = given(sum.checksum(), flow.tcp);
    if let Some(first) = frames.first_mut() {
        put(&mut first.bytes, place, &checksum);
    }
}

/// In UDP, 0 means that there is no checksum; the other zero means 0 (RFC 768).
fn given(checksum: u16, tcp: bool) -> [u8; 2] {
    match checksum {
        0 if !tcp => [255, 255],
        checksum => checksum.to_be_bytes(),
    }
}

fn protocol(flow: &Flow) -> u8 {
    if flow.tcp { 6 } else { 17 }
}

/// The IP header of a piece that `before` bytes of the datagram come before.
fn write_ip(packet: &mut [u8], datagram: &Datagram, before: usize, more: bool) {
    let flow = &datagram.flow;
    let (from, to) = (octets(flow.source.0), octets(flow.destination.0));
    let identification = scatter(datagram.number).to_le_bytes();
    if flow.source.0.is_ipv4() {
        let fragment = u16::try_from(before / 8).unwrap_or(0) | if more { MORE4 } else { 0 };
        let header = Ipv4 {
            identification: [identification[0], identification[1]],
            fragment,
            protocol: protocol(flow),
            ends: [&from, &to],
        };
        header.write(packet);
        return;
    }
    let len = short(packet.len() - 40);
    let next = if datagram.fragmented {
        FRAGMENT
    } else {
        protocol(flow)
    };
    put(packet, 0, &[0x60, 0, 0, 0, len[0], len[1], next, 64]);
    put(packet, 8, &from);
    put(packet, 24, &to);
    if datagram.fragmented {
        let offset = u16::try_from(before).unwrap_or(0) | if more { MORE6 } else { 0 };
        put(packet, 40, &[protocol(flow), 0]);
        put(packet, 42, &offset.to_be_bytes());
        put(packet, 44, &identification[..4]);
    }
}

/// An IPv4 header without options, for the packet that it is written to.
struct Ipv4<'a> {
    identification: [u8; 2],
    fragment: u16,
    protocol: u8,
    ends: [&'a [u8]; 2],
}

impl Ipv4<'_> {
    fn write(&self, packet: &mut [u8]) {
        let len = short(packet.len());
        put(packet, 0, &[0x45, 0, len[0], len[1]]);
        put(packet, 4, &self.identification);
        put(packet, 6, &self.fragment.to_be_bytes());
        put(packet, 8, &[64, self.protocol, 0, 0]);
        put(packet, 12, self.ends[0]);
        put(packet, 16, self.ends[1]);
        let checksum = Sum::default().bytes(&packet[..20]).checksum();
        put(packet, 10, &checksum.to_be_bytes());
    }
}

/// Outer IPv4 and UDP, VXLAN. The inner frame is there already.
fn write_tunnel(packet: &mut [u8], network: u32, datagram: &Datagram) {
    let [from, to] = if datagram.answer {
        [TUNNEL[1], TUNNEL[0]]
    } else {
        TUNNEL
    };
    let identification = scatter(!datagram.number).to_le_bytes();
    let header = Ipv4 {
        identification: [identification[0], identification[1]],
        fragment: 0,
        protocol: 17,
        ends: [&from, &to],
    };
    header.write(packet);
    let udp = &mut packet[20..];
    let len = udp.len();
    // The source port tells flows apart, as RFC 7348 wants it.
    let entropy = (datagram.flow.source.1 ^ datagram.flow.destination.1) | 0xc000;
    put(udp, 0, &entropy.to_be_bytes());
    put(udp, 2, &VXLAN_PORT.to_be_bytes());
    put(udp, 4, &short(len));
    put(udp, 6, &[0, 0]);
    put(udp, 8, &[0x08, 0, 0, 0]);
    put(udp, 12, &(network << 8).to_be_bytes());
    let sum = Sum::default().bytes(&from).bytes(&to).number(17 + len);
    let checksum = sum.bytes(udp).checksum();
    put(udp, 6, &given(checksum, false));
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn short(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

fn put(bytes: &mut [u8], at: usize, content: &[u8]) {
    bytes[at..at + content.len()].copy_from_slice(content);
}
