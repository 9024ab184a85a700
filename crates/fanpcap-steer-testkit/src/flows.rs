//! Conversations whose packets the tests know, and all encapsulations of their packets. This code
//! does not use the walk (`fanpcap_wire`, the parser of headers), so tests of the walk can rely on
//! it.

mod outside;
mod encapsulations;

pub use encapsulations::ALL;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fanpcap_gen::headers::{self, Ipv4, Ipv6, Tcp};

/// A packet of a conversation.
#[derive(Clone, Debug)]
pub struct Talk {
    /// Index of the conversation.
    pub flow: usize,
    /// Whether the server sends the packet.
    pub is_answer: bool,
    /// Index of the packet in its direction.
    pub round: usize,
    /// The packet, IPv4 or IPv6.
    pub packet: Vec<u8>,
}

/// An encapsulation of packets.
#[derive(Clone, Copy, Debug)]
pub struct Encapsulation {
    /// The name.
    pub name: &'static str,
    /// Returns the frame that contains a packet in this encapsulation.
    pub wrap: fn(&Talk) -> Vec<u8>,
    /// Whether the mode `flow` steers by the carried packet. docs/steering.md lists the names of
    /// all encapsulations for which it does not.
    pub is_read: bool,
}

/// Number of conversations: half of them over TCP, a quarter over IPv6.
pub const FLOWS: usize = 64;
/// Number of packets in each direction of a conversation.
pub const ROUNDS: usize = 6;

/// All packets of all conversations, in both directions.
pub fn talks() -> Vec<Talk> {
    let all = (0..ROUNDS).flat_map(|round| (0..FLOWS).map(move |flow| (round, flow)));
    all.flat_map(|(round, flow)| {
        [false, true].map(|is_answer| Talk {
            flow,
            is_answer,
            round,
            packet: packet(flow, is_answer, round),
        })
    })
    .collect()
}

/// Returns both ends of a packet, the source first. An answer goes from the server to the client.
fn turned<T>(is_answer: bool, (client, server): (T, T)) -> (T, T) {
    if is_answer {
        (server, client)
    } else {
        (client, server)
    }
}

fn short(number: usize) -> u16 {
    u16::try_from(number & 0xffff).unwrap_or(0)
}

/// Makes a packet of a conversation. Each conversation has its own client port. All conversations
/// have the same server port.
fn packet(flow: usize, is_answer: bool, round: usize) -> Vec<u8> {
    let ports = turned(is_answer, (20_000 + short(flow), 443));
    let payload = vec![0x5a; 10 + round * 97 + flow];
    let (protocol, segment) = if flow % 2 == 0 {
        let tcp = Tcp {
            ports,
            numbers: (1000, 2000),
            flags: 0x18,
            window: 8192,
        };
        (6, tcp.around(&payload))
    } else {
        (17, headers::udp(ports, &payload))
    };
    let host = |net: u16, last: usize| match flow % 4 {
        3 => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, short(last))),
        _ => IpAddr::V4(Ipv4Addr::from(
            0x0a00_0000 | (u32::from(net) << 16) | u32::from(short(last)),
        )),
    };
    let (from, to) = (host(1, flow + 1), host(2, flow % 7 + 1));
    match turned(is_answer, (from, to)) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ipv4 {
            ends: (from, to),
            protocol,
            identification: short(flow * 977 + round * 13 + usize::from(is_answer)),
            fragment: 0,
        }
        .around(&segment),
        (IpAddr::V6(from), IpAddr::V6(to)) => Ipv6 {
            ends: (from, to),
            protocol,
            fragment: None,
        }
        .around(&segment),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => Vec::new(),
    }
}
