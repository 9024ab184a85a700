//! What happens to one packet.

use std::fmt;

use fanpcap_steer::native::{Decision, Host, Outcome};
use fanpcap_wire::{Endpoint, Layers, number};
use serde::Serialize;

use super::flows::innermost;
use super::members::Members;
use super::place::FlowSide;

/// A packet, and who gets it.
#[derive(Debug, Serialize)]
pub(super) struct Fate {
    /// The packet's number in the capture file, from 1.
    pub(super) number: u64,
    /// Bytes on the wire.
    pub(super) bytes: u32,
    /// The innermost addresses, ports and protocol, or the EtherType of a packet that is not IP.
    pub(super) what: String,
    /// The members that get the packet.
    pub(super) members: Vec<usize>,
    /// Whether the program drops the packet.
    pub(super) dropped: bool,
    /// The class whose members share the packet.
    pub(super) class: u8,
    /// Whether the host gets the packet: `too`, `only`, or null if the program does not say.
    pub(super) host: Option<&'static str>,
}

impl Fate {
    pub(super) fn new(
        number: u64,
        bytes: u32,
        layers: &Layers<'_>,
        outcome: &Outcome,
        members: Members,
    ) -> Self {
        Self {
            number,
            bytes,
            what: what(layers),
            members: members.numbers().collect(),
            dropped: outcome.decision == Decision::Drop,
            class: outcome.class,
            host: match outcome.host {
                Host::Unsaid => None,
                Host::Too => Some("too"),
                Host::Only => Some("only"),
            },
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>6}  {}, {} bytes: ",
            self.number, self.what, self.bytes
        )?;
        match (&self.members[..], self.class) {
            _ if self.dropped => f.write_str("dropped")?,
            ([], class) => write!(f, "no member has class {class}")?,
            (members, 0) => f.write_str(&few(members))?,
            (members, class) => write!(f, "{} (class {class})", few(members))?,
        }
        match self.host {
            Some(host) => writeln!(f, ", host {host}"),
            None => writeln!(f),
        }
    }
}

fn what(layers: &Layers<'_>) -> String {
    if let Some((ip, _)) = innermost(layers) {
        let FlowSide { flow, direction } = FlowSide::of(&ip);
        let [lower, higher] = flow.ends();
        let (from, to) = match direction {
            0 => (lower, higher),
            _ => (higher, lower),
        };
        return flow_between(flow.protocol(), from, ">", to);
    }
    match layers.ether_type() {
        Some(0x0806) => "ARP".to_owned(),
        Some(ether_type) => format!("EtherType {ether_type:#06x}"),
        None => "no Ethernet frame".to_owned(),
    }
}

/// A flow as text: `UDP 10.1.0.1:1024 > 10.2.0.1:53`, with `sign` between the ends.
pub(super) fn flow_between(protocol: u8, from: Endpoint, sign: &str, to: Endpoint) -> String {
    format!("{} {} {sign} {}", name(protocol), end(from), end(to))
}

fn end(end: Endpoint) -> String {
    match (end.port, end.address) {
        (0, address) => address.to_string(),
        (port, address) => std::net::SocketAddr::new(address, port).to_string(),
    }
}

fn name(protocol: u8) -> String {
    let name = match protocol {
        number::TCP => "TCP",
        number::UDP => "UDP",
        number::SCTP => "SCTP",
        number::ICMP => "ICMP",
        number::ICMPV6 => "ICMPv6",
        number::GRE => "GRE",
        other => return format!("protocol {other}"),
    };
    name.to_owned()
}

/// A packet's members as text.
pub(super) fn few(members: &[usize]) -> String {
    if members.is_empty() {
        return "nobody".to_owned();
    }
    let shown: Vec<String> = members.iter().take(8).map(ToString::to_string).collect();
    let more = if members.len() > shown.len() {
        " ..."
    } else {
        ""
    };
    format!("member {}{more}", shown.join(" "))
}
