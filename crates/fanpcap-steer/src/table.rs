//! The table of the language's functions, for the compiler and the manual page.

mod build;
mod combinators;
mod comparisons;
mod forwarding;
mod given;
mod keys;
pub(crate) mod net;
mod predicates;
mod filters;
mod properties;
mod refused;
mod steering;

pub(crate) use given::{Argument, Built, Given, Wrong};
pub(crate) use refused::find as find_refused;
pub use refused::{REFUSED, Refused};

use crate::ir::{Function, Key, Predicate, Property};
use std::sync::LazyLock;

/// A function of the language.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Aliases.
    pub aliases: &'static [&'static str],
    /// Its parameters.
    pub takes: &'static [Parameter],
    /// Type of the result.
    pub gives: Type,
    /// An example: a steering program that uses the function.
    pub example: &'static str,
    /// Engines that run the function.
    pub engines: Engines,
    pub(crate) make: Make,
}

/// A function with its description.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// The function.
    pub entry: Entry,
    /// Description.
    pub meaning: &'static str,
    /// Description for IPv6, if it differs from `meaning`; else empty.
    pub ipv6: &'static str,
}

/// Makes the part of the tree for a call.
pub(crate) type Make = fn(&mut Given<'_>) -> Result<Built, Wrong>;

/// A parameter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// Kind of its arguments.
    pub kind: Kind,
}

/// Kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number in this inclusive range.
    Number(i128, i128),
    /// A list of numbers in this inclusive range.
    Numbers(i128, i128),
    /// An address with or without a prefix length.
    Net,
    /// An address.
    Host,
    /// A list of addresses.
    Hosts,
    /// An address and a prefix length in parentheses.
    Pair,
    /// An Ethernet address.
    Ethernet,
    /// A pcap expression.
    Pcap,
    /// A predicate, or a pcap expression.
    Predicate,
    /// A property.
    Property,
    /// A function.
    Function,
    /// A key, or the names of its fields.
    Key,
}

/// Type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A question about a packet.
    Predicate,
    /// A number in a packet or in its metadata.
    Property,
    /// An operation on a packet.
    Function,
    /// Fields of a packet.
    Key,
    /// An address prefix.
    Net,
    /// A number.
    Number,
}

/// Engines that run a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engines {
    /// All engines.
    All,
    /// The XDP engine. A kernel group can't run the function, because such a group gives each
    /// packet to one member and does not decide what the host gets.
    Xdp,
}

/// A group of functions.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Heading.
    pub title: &'static str,
    /// A sentence about the group.
    pub about: &'static str,
    /// The functions, in the order of the manual page.
    pub entries: &'static [Described],
}

/// The table, in the order of the manual page.
pub static GROUPS: [Group; 8] = [
    predicates::GROUP,
    properties::GROUP,
    comparisons::GROUP,
    combinators::GROUP,
    filters::GROUP,
    steering::GROUP,
    forwarding::GROUP,
    keys::GROUP,
];

/// All entries of the table.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter()
}

/// The entries without their descriptions, which only the manual page needs.
static ENTRIES: [Entry; count()] = {
    let mut entries = [GROUPS[0].entries[0].entry; count()];
    let (mut group, mut at, mut all) = (0, 0, 0);
    while group < GROUPS.len() {
        while at < GROUPS[group].entries.len() {
            entries[all] = GROUPS[group].entries[at].entry;
            (at, all) = (at + 1, all + 1);
        }
        (group, at) = (group + 1, 0);
    }
    entries
};

const fn count() -> usize {
    let (mut group, mut count) = (0, 0);
    while group < GROUPS.len() {
        count += GROUPS[group].entries.len();
        group += 1;
    }
    count
}

/// The entry that has this name or alias.
pub fn find(name: &str) -> Option<&'static Entry> {
    let found = NAMES.binary_search_by_key(&name, |(known, _)| known).ok()?;
    NAMES.get(found).map(|(_, entry)| *entry)
}

/// Whether this is a function that selects the member.
pub(crate) fn is_steering(entry: &Entry) -> bool {
    let mut entries = steering::GROUP.entries.iter();
    entries.any(|it| it.entry.name == entry.name)
}

/// The fields of the key that has this name.
pub(crate) fn key(name: &str) -> Option<Key> {
    let entry = find(name).filter(|entry| entry.gives == Type::Key)?;
    match plain(entry) {
        Ok(Built::Key(key)) => Some(key),
        _ => None,
    }
}

/// The name of this property in the language.
pub fn property_name(property: Property) -> Option<&'static str> {
    name_of(|built| matches!(built, Built::Property(it) if *it == property))
}

/// The name of the table's predicate without parameters that equals this predicate.
pub fn predicate_name(predicate: &Predicate) -> Option<&'static str> {
    name_of(|built| matches!(built, Built::Predicate(it) if it == predicate))
}

/// The name of the table's function without parameters that equals this function.
pub fn function_name(function: &Function) -> Option<&'static str> {
    name_of(|built| matches!(built, Built::Function(it) if it == function))
}

fn name_of(is_it: impl Fn(&Built) -> bool) -> Option<&'static str> {
    let mut plains = entries().filter(|entry| entry.takes.is_empty());
    let found = plains.find(|entry| plain(entry).is_ok_and(|built| is_it(&built)));
    found.map(|entry| entry.name)
}

/// The part of the tree for a call without arguments.
fn plain(entry: &Entry) -> Result<Built, Wrong> {
    (entry.make)(&mut Given::new(Vec::new(), &mut Vec::new()))
}

static NAMES: LazyLock<Vec<(&str, &Entry)>> = LazyLock::new(|| {
    let all = entries().flat_map(|entry| entry.names().map(move |name| (name, entry)));
    // Inserts each name at its place in the order: the code of a sort would be larger.
    all.fold(Vec::new(), |mut names, (name, entry)| {
        let place = names.partition_point(|(known, _)| *known < name);
        names.insert(place, (name, entry));
        names
    })
});

impl Entry {
    /// The name and the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.aliases.iter().copied())
    }

    /// The type, such as `port -> predicate`.
    pub fn signature(&self) -> String {
        let takes = self.takes.iter().map(|parameter| parameter.kind.word());
        let parts: Vec<&str> = takes.chain([self.gives.word()]).collect();
        parts.join(" -> ")
    }
}

impl Kind {
    /// The kind's word in a signature.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Number(..) => "number",
            Kind::Numbers(..) => "[number]",
            Kind::Net => "net",
            Kind::Host => "address",
            Kind::Hosts => "[address]",
            Kind::Pair => "(address, number)",
            Kind::Ethernet | Kind::Pcap => "string",
            Kind::Predicate => "predicate",
            Kind::Property => "property",
            Kind::Function => "function",
            Kind::Key => "key",
        }
    }

    /// The kind's words in a message.
    pub(crate) fn expected(self) -> String {
        match self {
            Kind::Number(least, most) => format!("a number from {least} to {most}"),
            Kind::Numbers(least, most) => format!("a list of numbers from {least} to {most}"),
            Kind::Net => "an address or net, \"192.168.0.0/16\" or \"2001:db8::/32\",".to_owned(),
            Kind::Host => "an address, \"192.168.0.1\" or \"2001:db8::1\",".to_owned(),
            Kind::Hosts => "a list of addresses, [\"192.168.0.1\"],".to_owned(),
            Kind::Pair => "an address and a prefix length, (\"192.168.0.0\", 16),".to_owned(),
            Kind::Ethernet => "an Ethernet address, \"4c:60:de:86:55:46\",".to_owned(),
            Kind::Pcap => "a pcap expression in quotes".to_owned(),
            Kind::Predicate => "a predicate".to_owned(),
            Kind::Property => "a property".to_owned(),
            Kind::Function => "a function".to_owned(),
            Kind::Key => "a key, key_5tuple or \"ip_src,ip_dst\",".to_owned(),
        }
    }

    /// Whether a value of the type `gives` can be the argument.
    pub(crate) fn fits(self, gives: Type) -> bool {
        match self {
            Kind::Number(..) => gives == Type::Number,
            Kind::Net => gives == Type::Net,
            Kind::Predicate => gives == Type::Predicate,
            Kind::Property => gives == Type::Property,
            Kind::Function => gives == Type::Function,
            Kind::Key => gives == Type::Key,
            Kind::Numbers(..)
            | Kind::Host
            | Kind::Hosts
            | Kind::Pair
            | Kind::Ethernet
            | Kind::Pcap => false,
        }
    }
}

impl Type {
    /// The type's word in a signature and in a message.
    pub fn word(self) -> &'static str {
        match self {
            Type::Predicate => "predicate",
            Type::Property => "property",
            Type::Function => "function",
            Type::Key => "key",
            Type::Net => "net",
            Type::Number => "number",
        }
    }
}

impl Engines {
    /// The engines' names for the manual page; empty for all engines.
    pub fn limit(self) -> &'static str {
        match self {
            Engines::All => "",
            Engines::Xdp => "xdp engine only",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_once() {
        for pair in NAMES.windows(2) {
            assert_ne!(pair[0].0, pair[1].0);
        }
        for refused in &REFUSED {
            for name in refused.names {
                assert!(find(name).is_none(), "{name}");
            }
        }
    }

    #[test]
    fn names_and_aliases_are_found() {
        assert_eq!(find("steer_p2p").unwrap().name, "steer_p2p");
        assert_eq!(find("shift").unwrap().name, "inner");
        assert!(find("tpc").is_none());
    }

    #[test]
    fn signatures_name_all_parameters() {
        let signature = |name| find(name).unwrap().signature();
        assert_eq!(signature("is_tcp"), "predicate");
        assert_eq!(signature("when"), "predicate -> function -> function");
        assert_eq!(
            signature("bloom"),
            "number -> [address] -> number -> predicate"
        );
    }
}
