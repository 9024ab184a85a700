//! Writes predicates in the language.

use std::net::{Ipv4Addr, Ipv6Addr};

use fanpcap_steer::ir::{Comparison, Header, Predicate, Property, Side, Tree};
use fanpcap_wire::number;

use super::steer;

/// The most elements of a set that are written.
const SHOWN: usize = 16;

/// Writes predicates; the tree holds their sets and filters.
pub(super) struct Predicates<'a>(&'a Tree);

impl<'a> Predicates<'a> {
    pub(super) fn of(program: &'a Tree) -> Self {
        Self(program)
    }

    pub(super) fn argument(&self, predicate: &Predicate) -> String {
        self.within(predicate, Binds::Whole)
    }

    /// A predicate with parentheses, unless it binds as tightly as `place` requires.
    fn within(&self, predicate: &Predicate, place: Binds) -> String {
        let (text, binds) = (self.bare(predicate), binds(predicate));
        let is_whole = !text.contains(' ');
        if binds >= place || is_whole {
            text
        } else {
            format!("({text})")
        }
    }

    fn bare(&self, predicate: &Predicate) -> String {
        let both = |one: &Predicate, operator, other: &Predicate| {
            let place = binds(predicate);
            format!(
                "{} {operator} {}",
                self.within(one, place),
                self.within(other, place)
            )
        };
        match predicate {
            Predicate::Constant(true) => "always".to_owned(),
            Predicate::Constant(false) => "never".to_owned(),
            Predicate::Not(of) => format!("not {}", self.argument(of)),
            Predicate::And(one, other) => both(one, ".&&.", other),
            Predicate::Or(one, other) => both(one, ".||.", other),
            Predicate::Xor(one, other) => both(one, ".^^.", other),
            Predicate::Compare(property, comparison, number) => {
                compare(*property, *comparison, *number)
            }
            Predicate::Member(property, set) => self.member(*property, *set),
            Predicate::Has(of) => header(*of).to_owned(),
            Predicate::Address(side, net) => {
                format!("has_{}addr {}", prefix(*side), steer::net(*net))
            }
            Predicate::AddressIn {
                side,
                ipv6,
                bits,
                set,
            } => self.addresses(*side, (*ipv6, *bits), *set),
            Predicate::Port(side, port) => format!("has_{}port {port}", prefix(*side)),
            Predicate::Pcap(filter) => {
                let text = self
                    .0
                    .filters
                    .get(*filter)
                    .map_or("", |filter| filter.text.as_str());
                format!(
                    "pcap \"{}\"",
                    text.replace('\\', "\\\\").replace('"', "\\\"")
                )
            }
            Predicate::Share { index, of, key } => {
                format!("share {index} {of} {}", steer::key(*key))
            }
            Predicate::Rtp => "is_rtp".to_owned(),
            Predicate::Rtcp => "is_rtcp".to_owned(),
        }
    }

    fn set(&self, set: usize) -> &[u128] {
        self.0.sets.get(set).map_or(&[], Vec::as_slice)
    }

    fn member(&self, property: Property, set: usize) -> String {
        let list = list(&numbers(self.set(set)));
        // There, 0 also represents untagged frames.
        if property == Property::VlanId && !self.set(set).contains(&0) {
            format!("vlan_id {list}")
        } else {
            format!("is_in {} {list}", name(property))
        }
    }

    fn addresses(&self, side: Side, (ipv6, bits): (bool, u8), set: usize) -> String {
        let name = match side {
            Side::Either => "bloom",
            Side::Source => "bloom_src",
            Side::Destination => "bloom_dst",
        };
        let address = |number: &u128| match (ipv6, u32::try_from(*number)) {
            (false, Ok(number)) => format!("\"{}\"", Ipv4Addr::from_bits(number)),
            _ => format!("\"{}\"", Ipv6Addr::from_bits(*number)),
        };
        let set = self.set(set);
        let addresses: Vec<String> = set.iter().map(address).collect();
        format!("{name} {} {} {bits}", set.len(), list(&addresses))
    }
}

/// Binding strength, weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binds {
    Or,
    Xor,
    And,
    Compared,
    Applied,
    Whole,
}

fn binds(predicate: &Predicate) -> Binds {
    match predicate {
        Predicate::Or(..) => Binds::Or,
        Predicate::Xor(..) => Binds::Xor,
        Predicate::And(..) => Binds::And,
        Predicate::Compare(..) => Binds::Compared,
        Predicate::Constant(_)
        | Predicate::Not(_)
        | Predicate::Member(..)
        | Predicate::Has(_)
        | Predicate::Address(..)
        | Predicate::AddressIn { .. }
        | Predicate::Port(..)
        | Predicate::Pcap(_)
        | Predicate::Share { .. }
        | Predicate::Rtp
        | Predicate::Rtcp => Binds::Applied,
    }
}

/// The numbers of a sorted set; consecutive numbers become a range.
fn numbers(set: &[u128]) -> Vec<String> {
    let runs = set.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    let text = |run: &[u128]| match run {
        [first, _, .., last] => vec![format!("{first}..{last}")],
        few => few.iter().map(ToString::to_string).collect(),
    };
    let mut elements: Vec<String> = runs.flat_map(text).collect();
    // Haskell reads `[a, b..c]` as a range with steps, so our compiler refuses it.
    if let [_, range] = elements.as_slice() {
        if range.contains("..") {
            elements.reverse();
        }
    }
    elements
}

fn list(elements: &[String]) -> String {
    let shown = &elements[..elements.len().min(SHOWN)];
    let more = match elements.len() - shown.len() {
        0 => String::new(),
        more => format!(" {{- and {more} more -}}"),
    };
    format!("[{}{more}]", shown.join(", "))
}

fn prefix(side: Side) -> &'static str {
    match side {
        Side::Either => "",
        Side::Source => "src_",
        Side::Destination => "dst_",
    }
}

fn compare(property: Property, comparison: Comparison, value: u64) -> String {
    if let (Property::Protocol, Comparison::Equal) = (property, comparison) {
        let known = PROTOCOLS
            .iter()
            .find(|(number, _)| u64::from(*number) == value);
        if let Some((_, name)) = known {
            return (*name).to_owned();
        }
    }
    let operator = match comparison {
        Comparison::Less => ".<",
        Comparison::LessEqual => ".<=",
        Comparison::Equal => ".==",
        Comparison::NotEqual => "./=",
        Comparison::Greater => ".>",
        Comparison::GreaterEqual => ".>=",
        Comparison::AnyBit => "`any_bit`",
        Comparison::AllBits => "`all_bit`",
    };
    let value = match (property, comparison) {
        (Property::EtherType, _) => format!("{value:#06x}"),
        (_, Comparison::AnyBit | Comparison::AllBits) => format!("{value:#x}"),
        _ => value.to_string(),
    };
    format!("{} {operator} {value}", name(property))
}

const PROTOCOLS: [(u8, &str); 5] = [
    (number::TCP, "is_tcp"),
    (number::UDP, "is_udp"),
    (number::DCCP, "is_dccp"),
    (number::SCTP, "is_sctp"),
    (number::UDP_LITE, "is_udplite"),
];

fn header(header: Header) -> &'static str {
    match header {
        // The language has the function vlan_or_untagged, but no such predicate. This expression is
        // equivalent.
        Header::Link => "(eth_type .>= 0)",
        Header::Tag => "has_vlan",
        Header::Ipv4 => "is_ip",
        Header::Ipv6 => "is_ip6",
        Header::Ip => "has_ip",
        Header::Fragment => "is_frag",
        Header::FirstFragment => "is_first_frag",
        Header::LaterFragment => "is_more_frag",
        Header::Inner => "has_inner",
        Header::LinkBroadcast => "is_broadcast",
        Header::LinkMulticast => "is_multicast",
        Header::IpBroadcast => "is_ip_broadcast",
        Header::IpMulticast => "is_ip_multicast",
    }
}

fn name(property: Property) -> &'static str {
    match property {
        Property::EtherType => "eth_type",
        Property::VlanId => "vid",
        Property::Protocol => "ip_proto",
        Property::Tos => "ip_tos",
        Property::IpLength => "ip_tot_len",
        Property::IpId => "ip_id",
        Property::IpFragment => "ip_frag",
        Property::Ttl => "ip_ttl",
        Property::TcpSource => "tcp_source",
        Property::TcpDestination => "tcp_dest",
        Property::TcpHeaderLength => "tcp_hdrlen",
        Property::UdpSource => "udp_source",
        Property::UdpDestination => "udp_dest",
        Property::UdpLength => "udp_len",
        Property::IcmpType => "icmp_type",
        Property::IcmpCode => "icmp_code",
        Property::Mark => "get_mark",
        Property::State => "get_state",
        Property::Queue => "rx_queue",
    }
}
