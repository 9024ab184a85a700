//! Traffic: flows from a seed, and frames that carry a sequence number, with valid checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use anyhow::{Context, Result};
use etherparse::{IpFragOffset, Ipv4Header, PacketBuilder};

use crate::flow::{Direction, Flow, Transport};

/// A frame to send.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The flow that it belongs to.
    pub flow: Flow,
    /// Who sends it.
    pub direction: Direction,
    /// The number in its payload.
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

/// One frame for each of `sequences`. Flow, direction and length of the payload, 12 to 267 bytes, are
/// drawn from `seed`; flows in turn would look the same under `lb` as under `hash`.
///
/// # Errors
/// When a frame can't be built.
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
/// When the payload is too long for a packet.
pub fn frame(flow: Flow, direction: Direction, sequence: u64, payload_len: usize) -> Result<Frame> {
    let (source, destination) = flow.ends(direction);
    let (from, to) = match direction {
        Direction::Request => (CLIENT_MAC, SERVER_MAC),
        Direction::Reply => (SERVER_MAC, CLIENT_MAC),
    };
    let mut payload = MAGIC.to_vec();
    payload.extend(sequence.to_be_bytes());
    payload.resize(payload_len.max(MARK_LEN), 0x5a);

    let headers = ip_headers(source, destination)?;
    let builder = PacketBuilder::ethernet2(from, to);
    let step = match flow.vlan {
        Some(vlan) => builder.single_vlan(vlan).ip(headers),
        None => builder.ip(headers),
    };
    let mut bytes = Vec::new();
    match flow.transport {
        Transport::Tcp => step
            .tcp(source.port(), destination.port(), 1, 1024)
            .ack(1)
            .write(&mut bytes, &payload),
        Transport::Udp => step
            .udp(source.port(), destination.port())
            .write(&mut bytes, &payload),
    }
    .context("building a frame")?;
    Ok(Frame {
        flow,
        direction,
        sequence,
        bytes,
    })
}

/// Cuts an IPv4 frame into fragments of at most `part` bytes of IP payload (rounded down to 8).
///
/// # Errors
/// When the frame isn't IPv4.
pub fn fragments(frame: &Frame, part: usize) -> Result<Vec<Frame>> {
    let link_len = if frame.flow.vlan.is_some() { 18 } else { 14 };
    let (link, packet) = frame.bytes.split_at(link_len);
    let (header, payload) = Ipv4Header::from_slice(packet).context("an IPv4 frame")?;
    let part = part / 8 * 8;
    let count = payload.len().div_ceil(part);
    let cut = |(index, piece): (usize, &[u8])| {
        let mut header = header.clone();
        header.identification = u16::from_be_bytes(low_bytes(frame.sequence));
        header.dont_fragment = false;
        header.more_fragments = index + 1 < count;
        header.fragment_offset = IpFragOffset::try_new(u16::try_from(index * part / 8)?)?;
        header.set_payload_len(piece.len())?;
        header.header_checksum = header.calc_header_checksum();
        let bytes = [link, &header.to_bytes(), piece].concat();
        Ok(Frame {
            bytes,
            ..frame.clone()
        })
    };
    payload.chunks(part).enumerate().map(cut).collect()
}

/// The sequence number in a frame's bytes.
pub fn sequence_of(bytes: &[u8]) -> Option<u64> {
    let at = bytes
        .windows(MAGIC.len())
        .position(|window| window == MAGIC)?
        + MAGIC.len();
    let number = bytes.get(at..at + 8)?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

fn ip_headers(source: SocketAddr, destination: SocketAddr) -> Result<etherparse::IpHeaders> {
    use etherparse::{IpHeaders, IpNumber, Ipv6Header};
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            // The builder fills in protocol, length and checksum.
            let header =
                Ipv4Header::new(0, 64, IpNumber::UDP, source.octets(), destination.octets())?;
            Ok(IpHeaders::Ipv4(
                header,
                etherparse::Ipv4Extensions::default(),
            ))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = Ipv6Header {
                hop_limit: 64,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv6Header::default()
            };
            Ok(IpHeaders::Ipv6(
                header,
                etherparse::Ipv6Extensions::default(),
            ))
        }
        _ => anyhow::bail!("a flow with both IPv4 and IPv6"),
    }
}

fn ipv4_flow(transport: Transport, index: u16, random: &mut Random) -> Flow {
    let [high, low] = index.to_be_bytes();
    // The index in the client's address keeps flows apart whatever is drawn for the rest.
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

const CLIENT_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];
const SERVER_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0b];
const MAGIC: [u8; 4] = *b"FANP";
const MARK_LEN: usize = MAGIC.len() + 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::FlowKey;

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
