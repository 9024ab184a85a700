//! Writes predicates in the language.

use std::net::{Ipv4Addr, Ipv6Addr};

use fanpcap_steer::ir::{Comparison, Header, Predicate, Property, Side};
use fanpcap_steer::table;

use super::{Writer, steer};

/// The most elements of a set that are written.
const SHOWN: usize = 16;

impl Writer<'_> {
    pub(super) fn predicate(&self, predicate: &Predicate) -> String {
        self.within(predicate, Binds::Whole)
    }

    /// A predicate with parentheses, unless it binds as tightly as `place` requires.
    fn within(&self, predicate: &Predicate, place: Binds) -> String {
        let (text, binds) = (self.bare_predicate(predicate), binds(predicate));
        let is_whole = !text.contains(' ');
        if binds >= place || is_whole {
            text
        } else {
            format!("({text})")
        }
    }

    fn bare_predicate(&self, predicate: &Predicate) -> String {
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
            Predicate::Not(of) => format!("not {}", self.predicate(of)),
            Predicate::And(one, other) => both(one, ".&&.", other),
            Predicate::Or(one, other) => both(one, ".||.", other),
            Predicate::Xor(one, other) => both(one, ".^^.", other),
            Predicate::Compare(property, comparison, number) => {
                compare(*property, *comparison, *number)
            }
            Predicate::Member(property, set) => self.member(*property, *set),
            // The language has the function vlan_or_untagged, but no predicate for the same test.
            // This expression is equivalent.
            Predicate::Has(Header::Link) => "(eth_type .>= 0)".to_owned(),
            Predicate::Has(_) => table::predicate_name(predicate)
                .unwrap_or_default()
                .to_owned(),
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
        // `vlan_id` with 0 would compile to another tree, with a test for untagged frames.
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
    // Haskell reads `[a, b..c]` as a range with steps, so our compiler refuses it. Put the range
    // first.
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
    // A comparison of the protocol is written as the predicate that means the same, if the language
    // has one. A comparison of another property is written with its operator.
    let known = table::predicate_name(&Predicate::Compare(property, comparison, value));
    if let Some(name) = known.filter(|_| property == Property::Protocol) {
        return name.to_owned();
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

fn name(property: Property) -> &'static str {
    table::property_name(property).unwrap_or_default()
}
