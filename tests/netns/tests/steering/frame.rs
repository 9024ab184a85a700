//! Frames layer by layer, from the inside out. The function of a layer takes the payload. Its
//! result has the layer's bytes, and the number by which the next outer layer identifies the layer.
//! Checksums of TCP, UDP and ICMP are 0, because no test reads them.

use std::net::IpAddr;

use fanpcap_gen::headers::{self, IPV4, IPV6, Ipv4, Ipv6, MORE_FRAGMENTS, TCP, Tcp, UDP};
use fanpcap_testkit::Direction;

/// A frame, and its direction at the device where members capture.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) direction: Direction,
    pub(crate) bytes: Vec<u8>,
}

/// The payload of an Ethernet frame, and the payload's Ethernet type.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    kind: u16,
    bytes: Vec<u8>,
}

/// The payload of an IP packet, and the payload's protocol.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    protocol: u8,
    bytes: Vec<u8>,
}

/// Source and destination.
pub(crate) type Ends<T> = (T, T);
pub(crate) type Mac = [u8; 6];

/// The addresses of the two hosts between which most frames pass.
pub(crate) const CLIENT: Mac = [0x02, 0, 0, 0, 0, 0x0a];
pub(crate) const SERVER: Mac = [0x02, 0, 0, 0, 0, 0x0b];

impl Frame {
    /// The frame arrives, as from the wire or a tap.
    pub(crate) fn arriving(bytes: Vec<u8>) -> Self {
        let direction = Direction::Request;
        Self { direction, bytes }
    }

    /// This host sends the frame.
    pub(crate) fn leaving(bytes: Vec<u8>) -> Self {
        let direction = Direction::Reply;
        Self { direction, bytes }
    }
}

impl Packet {
    /// A packet of any type.
    pub(crate) fn other(kind: u16, bytes: &[u8]) -> Self {
        let bytes = bytes.to_vec();
        Self { kind, bytes }
    }

    /// The packet with `value` as its byte at the offset `at`.
    pub(crate) fn with(mut self, at: usize, value: u8) -> Self {
        self.bytes[at] = value;
        self
    }

    /// The packet as the payload of an Ethernet frame.
    pub(crate) fn between(&self, (from, to): Ends<Mac>) -> Vec<u8> {
        headers::ethernet(to, from, self.kind, &self.bytes)
    }

    /// The packet in an Ethernet frame from client to server.
    pub(crate) fn framed(&self) -> Vec<u8> {
        self.between((CLIENT, SERVER))
    }

    /// The packet after a tag of this type: 0x8100 is 802.1Q's type, 0x88a8 is 802.1ad's.
    pub(crate) fn tagged(&self, tag: u16, vlan: u16) -> Self {
        Self::other(tag, &headers::tag(vlan, self.kind, &self.bytes))
    }

    /// The packet after MPLS labels, the outermost first (RFC 3032).
    pub(crate) fn labelled(&self, labels: &[u32]) -> Self {
        let last = labels.len().saturating_sub(1);
        let entry = |(place, label): (usize, &u32)| {
            let bottom = u32::from(place == last) << 8;
            ((label << 12) | bottom | 64).to_be_bytes()
        };
        let mut bytes: Vec<u8> = labels.iter().enumerate().flat_map(entry).collect();
        bytes.extend(&self.bytes);
        Self::other(0x8847, &bytes)
    }

    /// The packet in a PPPoE session (RFC 2516).
    pub(crate) fn in_session(&self, session: u16) -> Self {
        let protocol: u16 = if self.kind == IPV4 { 0x0021 } else { 0x0057 };
        let mut bytes = vec![0x11, 0];
        bytes.extend(session.to_be_bytes());
        bytes.extend(short(self.bytes.len() + 2));
        bytes.extend(protocol.to_be_bytes());
        bytes.extend(&self.bytes);
        Self::other(0x8864, &bytes)
    }

    /// The packet as the payload of an IP packet (RFC 2003, RFC 2473).
    pub(crate) fn in_ip(&self) -> Segment {
        let protocol = if self.kind == IPV4 { 4 } else { 41 };
        segment(protocol, &[&self.bytes])
    }

    /// The packet in GRE with a key (RFC 2890).
    pub(crate) fn in_gre(&self, key: u32) -> Segment {
        let head = [&[0x20, 0][..], &self.kind.to_be_bytes(), &key.to_be_bytes()];
        segment(47, &[&head.concat(), &self.bytes])
    }

    /// The packet in GTP-U, from this UDP port (3GPP TS 29.281).
    pub(crate) fn in_gtp(&self, port: u16, tunnel: u32) -> Segment {
        let mut data = vec![0x30, 0xff];
        data.extend(short(self.bytes.len()));
        data.extend(tunnel.to_be_bytes());
        data.extend(&self.bytes);
        udp((port, 2152), &data)
    }

    /// An ICMP error about the packet: destination unreachable, for IPv4 and for IPv6 (RFC 792, RFC
    /// 4443). The error quotes the packet's header and eight bytes of its payload.
    pub(crate) fn refused(&self) -> Segment {
        let (protocol, kind, quoted) = if self.kind == IPV4 {
            (ICMP, 3, 28)
        } else {
            (ICMP6, 1, 48)
        };
        let quote = &self.bytes[..quoted.min(self.bytes.len())];
        segment(protocol, &[&[kind, 1, 0, 0, 0, 0, 0, 0], quote])
    }
}

impl Segment {
    /// The packet's payload after IPv6's destination options, which are padding (RFC 8200 section
    /// 4.6).
    pub(crate) fn behind_options(&self) -> Self {
        segment(60, &[&[self.protocol, 0, 1, 4, 0, 0, 0, 0], &self.bytes])
    }
}

/// The frame in VXLAN, from this UDP port (RFC 7348).
pub(crate) fn in_vxlan(frame: &[u8], port: u16, network: u32) -> Segment {
    let head = [0x0800_0000_u32.to_be_bytes(), (network << 8).to_be_bytes()].concat();
    udp((port, 4789), &[&head, frame].concat())
}

/// The frame in Geneve with an option, from this UDP port (RFC 8926).
pub(crate) fn in_geneve(frame: &[u8], port: u16, network: u32) -> Segment {
    let head = [&[0x02, 0, 0x65, 0x58][..], &(network << 8).to_be_bytes()].concat();
    let option = [0x01, 0x02, 0x80, 1, 0xde, 0xad, 0xbe, 0xef];
    udp((port, 6081), &[&head, &option[..], frame].concat())
}

/// The frame in ERSPAN of type II, in GRE with a sequence number.
pub(crate) fn in_erspan(frame: &[u8], sequence: u32) -> Segment {
    let gre = [&[0x10, 0, 0x88, 0xbe][..], &sequence.to_be_bytes()].concat();
    segment(47, &[&gre, &[0x10, 0x01, 0, 0x05, 0, 0, 0, 0], frame])
}

/// The payload of an IP packet of any protocol.
pub(crate) fn segment(protocol: u8, parts: &[&[u8]]) -> Segment {
    let bytes = parts.concat();
    Segment { protocol, bytes }
}

pub(crate) fn udp(ports: Ends<u16>, data: &[u8]) -> Segment {
    segment(UDP, &[&headers::udp(ports, data)])
}

pub(crate) fn tcp(ports: Ends<u16>, data: &[u8]) -> Segment {
    let header = Tcp {
        ports,
        numbers: (1, 1),
        flags: 0x18,
        window: 0x2000,
    };
    segment(TCP, &[&header.around(data)])
}

/// An SCTP packet with a DATA chunk (RFC 9260).
pub(crate) fn sctp(ports: Ends<u16>, data: &[u8]) -> Segment {
    let tail = [0, 0, 0, 1, 0, 0, 0, 0];
    let chunk = [&[0, 3][..], &short(data.len() + 16), &[0; 12]].concat();
    segment(SCTP, &[&both(ports), &tail, &chunk, data])
}

/// An ICMP echo request, or the reply to it.
pub(crate) fn echo(ipv4: bool, reply: bool, data: &[u8]) -> Segment {
    let (protocol, kind) = match (ipv4, reply) {
        (true, false) => (ICMP, 8),
        (true, true) => (ICMP, 0),
        (false, _) => (ICMP6, 128 + u8::from(reply)),
    };
    segment(protocol, &[&[kind, 0, 0, 0, 0, 1, 0, 1], data])
}

/// An IP packet.
pub(crate) fn ip(ends: Ends<IpAddr>, carried: &Segment) -> Packet {
    let Segment { protocol, bytes } = carried;
    piece(ends, *protocol, None, bytes)
}

/// The fragments of an IP packet, of `every` bytes each (a multiple of eight).
pub(crate) fn fragments(
    ends: Ends<IpAddr>,
    identification: u16,
    carried: &Segment,
    every: usize,
) -> Vec<Packet> {
    let count = carried.bytes.len().div_ceil(every);
    let cut = |(place, bytes): (usize, &[u8])| {
        let fragment = Fragment {
            identification,
            offset: place * every,
            more: place + 1 < count,
        };
        piece(ends, carried.protocol, Some(fragment), bytes)
    };
    carried.bytes.chunks(every).enumerate().map(cut).collect()
}

#[derive(Clone, Copy)]
struct Fragment {
    identification: u16,
    offset: usize,
    more: bool,
}

fn piece(ends: Ends<IpAddr>, protocol: u8, fragment: Option<Fragment>, bytes: &[u8]) -> Packet {
    let number = |number| u16::try_from(number).unwrap_or(0);
    match ends {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let more = fragment.is_some_and(|fragment| fragment.more);
            let offset = fragment.map_or(0, |fragment| number(fragment.offset / 8));
            let header = Ipv4 {
                ends: (from, to),
                protocol,
                identification: fragment.map_or(0, |fragment| fragment.identification),
                fragment: offset | if more { MORE_FRAGMENTS } else { 0 },
            };
            Packet::other(IPV4, &header.around(bytes))
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = Ipv6 {
                ends: (from, to),
                protocol,
                fragment: fragment.map(|it| (it.identification.into(), number(it.offset), it.more)),
            };
            Packet::other(IPV6, &header.around(bytes))
        }
        _ => panic!("a packet with both IPv4 and IPv6"),
    }
}

/// The same ends in the other direction.
pub(crate) fn turned<T>((one, other): Ends<T>) -> Ends<T> {
    (other, one)
}

fn both((from, to): Ends<u16>) -> Vec<u8> {
    [from.to_be_bytes(), to.to_be_bytes()].concat()
}

fn short(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const SCTP: u8 = 132;
