//! Traffic: flows from a seed, and frames that carry a sequence number, with valid checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use anyhow::{Result, bail, ensure};
use etherparse::VlanId;
use fanpcap_gen::headers::{self, DONT_FRAGMENT, IPV4, IPV6, Ipv4, Ipv6, MORE_FRAGMENTS, Tcp};
use fanpcap_testbed::capture::MARK;
pub use fanpcap_testbed::capture::sequence_of;
use fanpcap_testbed::{FlowKey, Transport};

/// The direction of a frame in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Client to server.
    Request,
    /// Server to client.
    Reply,
}

/// One conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The flow's transport.
    pub transport: Transport,
    /// The end that begins.
    pub client: SocketAddr,
    /// The end that answers.
    pub server: SocketAddr,
    /// The VLAN tag that the flow's frames carry.
    pub vlan: Option<VlanId>,
}

impl Flow {
    /// The flow's key.
    pub fn key(&self) -> FlowKey {
        FlowKey::new(Some(self.transport), self.client, self.server)
    }

    /// Sender and receiver of frames in `direction`.
    pub fn ends(&self, direction: Direction) -> (SocketAddr, SocketAddr) {
        match direction {
            Direction::Request => (self.client, self.server),
            Direction::Reply => (self.server, self.client),
        }
    }
}

/// A frame to send.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The flow to which the frame belongs.
    pub flow: Flow,
    /// The frame's direction in the flow.
    pub direction: Direction,
    /// The sequence number in the frame's payload.
    pub sequence: u64,
    /// The frame, link-layer header included.
    pub bytes: Vec<u8>,
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Makes `each` flows of every kind: TCP and UDP, over IPv4 and IPv6. Addresses and ports are drawn
/// from `seed`; no two flows are alike.
pub fn flows(seed: u64, each: u16) -> Vec<Flow> {
    let mut random = Random(seed);
    let mut flows = Vec::new();
    for index in 0..each {
        for transport in [Transport::Tcp, Transport::Udp] {
            flows.push(ipv4_flow(transport, index, &mut random));
            flows.push(ipv6_flow(transport, index, &mut random));
        }
    }
    flows
}

/// One frame for each of `sequences`. Flow, direction and length of the payload, 12 to 267 bytes,
/// are drawn from `seed`. The order of the flows is random, because with a fixed order `lb` could
/// give all packets of a flow to one member, as `hash` does.
///
/// # Errors
/// A frame can't be built.
pub fn frames(seed: u64, flows: &[Flow], sequences: Range<u64>) -> Result<Vec<Frame>> {
    let mut random = Random(seed);
    let build = |sequence| {
        let flow = flows[usize::from(random.short()) % flows.len()];
        let direction = if random.byte() & 1 == 0 {
            Direction::Request
        } else {
            Direction::Reply
        };
        frame(
            flow,
            direction,
            sequence,
            MARK_LEN + usize::from(random.byte()),
        )
    };
    sequences.map(build).collect()
}

/// One frame with `payload_len` bytes of payload (at least the 12 that hold the sequence number).
///
/// # Errors
/// The payload is too long for a packet.
pub fn frame(flow: Flow, direction: Direction, sequence: u64, payload_len: usize) -> Result<Frame> {
    let (source, destination) = flow.ends(direction);
    let (from, to) = match direction {
        Direction::Request => (CLIENT_MAC, SERVER_MAC),
        Direction::Reply => (SERVER_MAC, CLIENT_MAC),
    };
    let mut payload = MARK.to_vec();
    payload.extend(sequence.to_be_bytes());
    payload.resize(payload_len.max(MARK_LEN), 0x5a);

    let (protocol, mut segment) = match flow.transport {
        Transport::Tcp => (headers::TCP, tcp(source, destination).around(&payload)),
        Transport::Udp => {
            let ports = (source.port(), destination.port());
            (headers::UDP, headers::udp(ports, &payload))
        }
    };
    ensure!(
        segment.len() < LONGEST,
        "a payload of {payload_len} bytes is too long for a packet"
    );
    headers::complete((source.ip(), destination.ip()), protocol, &mut segment);
    let (mut kind, mut packet) = match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = Ipv4 {
                ends: (from, to),
                protocol,
                identification: 0,
                fragment: DONT_FRAGMENT,
            };
            (IPV4, header.around(&segment))
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = Ipv6 {
                ends: (from, to),
                protocol,
                fragment: None,
            };
            (IPV6, header.around(&segment))
        }
        _ => bail!("one end of the flow has an IPv4 address, the other an IPv6 address"),
    };
    if let Some(vlan) = flow.vlan {
        packet = headers::tag(vlan.value(), kind, &packet);
        kind = TAG;
    }
    Ok(Frame {
        flow,
        direction,
        sequence,
        bytes: headers::ethernet(to, from, kind, &packet),
    })
}

fn tcp(source: SocketAddr, destination: SocketAddr) -> Tcp {
    Tcp {
        ports: (source.port(), destination.port()),
        numbers: (1, 1),
        flags: 0x10,
        window: 1024,
    }
}

/// Cuts an IPv4 frame into fragments of at most `part` bytes of IP payload (rounded down to 8).
///
/// # Errors
/// The frame isn't IPv4.
pub fn fragments(frame: &Frame, part: usize) -> Result<Vec<Frame>> {
    let (source, destination) = frame.flow.ends(frame.direction);
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (source.ip(), destination.ip()) else {
        bail!("only IPv4 frames can be cut into fragments");
    };
    let link_len = if frame.flow.vlan.is_some() { 18 } else { 14 };
    let (link, packet) = frame.bytes.split_at(link_len);
    let (header, payload) = packet.split_at(20);
    let part = part / 8 * 8;
    let count = payload.len().div_ceil(part);
    let cut = |(index, piece): (usize, &[u8])| {
        let more = if index + 1 < count { MORE_FRAGMENTS } else { 0 };
        let header = Ipv4 {
            ends: (source, destination),
            protocol: header[9],
            identification: u16::from_be_bytes(low_bytes(frame.sequence)),
            fragment: u16::try_from(index * part / 8)? | more,
        };
        Ok(Frame {
            bytes: [link, &header.around(piece)].concat(),
            ..frame.clone()
        })
    };
    payload.chunks(part).enumerate().map(cut).collect()
}

fn ipv4_flow(transport: Transport, index: u16, random: &mut Random) -> Flow {
    let [high, low] = index.to_be_bytes();
    // The client's address contains the index, so flows differ even if all their other numbers are
    // the same.
    let client = Ipv4Addr::new(10, 1, high, low);
    let server = Ipv4Addr::new(10, 2, random.byte(), random.byte());
    flow(transport, client.into(), server.into(), random)
}

fn ipv6_flow(transport: Transport, index: u16, random: &mut Random) -> Flow {
    let client = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, index);
    let server = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, random.short());
    flow(transport, client.into(), server.into(), random)
}

fn flow(transport: Transport, client: IpAddr, server: IpAddr, random: &mut Random) -> Flow {
    let client = SocketAddr::new(client, random.short() | 0x8000);
    let server = SocketAddr::new(server, random.short() & 0x3fff | 1);
    Flow {
        transport,
        client,
        server,
        vlan: None,
    }
}

fn low_bytes(number: u64) -> [u8; 2] {
    let [.., high, low] = number.to_be_bytes();
    [high, low]
}

/// SplitMix64 (Steele, Lea and Flood, 2014): short, seeded and good enough to draw addresses.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn short(&mut self) -> u16 {
        u16::from_be_bytes(low_bytes(self.next()))
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }
}

/// The least length in bytes that is too long for the payload of an IPv4 packet.
const LONGEST: usize = 65516;
/// Ethernet's type of an 802.1Q tag.
const TAG: u16 = 0x8100;
const CLIENT_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];
const SERVER_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0b];
const MARK_LEN: usize = MARK.len() + 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_carry_their_flow_and_number() {
        let flows = flows(1, 50);
        for frame in frames(2, &flows, 100..600).unwrap() {
            assert_eq!(FlowKey::of(&frame.bytes), Some(frame.flow.key()));
            assert_eq!(sequence_of(&frame.bytes), Some(frame.sequence));
        }
    }

    #[test]
    fn flows_differ() {
        let mut keys: Vec<_> = flows(3, 500).iter().map(Flow::key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 2000);
    }

    #[test]
    fn checksums_are_valid() {
        for frame in frames(4, &flows(4, 5), 0..100).unwrap() {
            let packet = etherparse::PacketHeaders::from_ethernet_slice(&frame.bytes).unwrap();
            let (net, transport) = (packet.net.unwrap(), packet.transport.unwrap());
            let payload = packet.payload.slice();
            let (found, expected) = match (&net, &transport) {
                (etherparse::NetHeaders::Ipv4(ip, _), etherparse::TransportHeader::Udp(udp)) => {
                    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                    (udp.checksum, udp.calc_checksum_ipv4(ip, payload).unwrap())
                }
                (etherparse::NetHeaders::Ipv4(ip, _), etherparse::TransportHeader::Tcp(tcp)) => {
                    (tcp.checksum, tcp.calc_checksum_ipv4(ip, payload).unwrap())
                }
                (etherparse::NetHeaders::Ipv6(ip, _), etherparse::TransportHeader::Udp(udp)) => {
                    (udp.checksum, udp.calc_checksum_ipv6(ip, payload).unwrap())
                }
                (etherparse::NetHeaders::Ipv6(ip, _), etherparse::TransportHeader::Tcp(tcp)) => {
                    (tcp.checksum, tcp.calc_checksum_ipv6(ip, payload).unwrap())
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn fragments_make_up_the_packet() {
        let flow = flows(5, 1)[0];
        let whole = frame(flow, Direction::Request, 9, 3000).unwrap();
        let parts = fragments(&whole, 1480).unwrap();
        assert_eq!(parts.len(), 3);
        let together: Vec<u8> = parts
            .iter()
            .flat_map(|part| part.bytes[34..].to_vec())
            .collect();
        assert_eq!(together, whole.bytes[34..]);
    }
}
