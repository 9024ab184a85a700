//! Constructors for the table's entries.

use super::{Described, Engines, Entry, Kind, Make, Parameter, Type};

pub(super) const fn parameter(name: &'static str, kind: Kind) -> Parameter {
    Parameter { name, kind }
}

const fn entry(
    gives: Type,
    name: &'static str,
    takes: &'static [Parameter],
    meaning: &'static str,
    example: &'static str,
    make: Make,
) -> Described {
    let entry = Entry {
        name,
        aliases: &[],
        takes,
        gives,
        example,
        engines: Engines::All,
        make,
    };
    Described {
        entry,
        meaning,
        ipv6: "",
    }
}

macro_rules! kinds_of_entries {
    ($($(#[$doc:meta])* $name:ident: $gives:expr;)*) => {
        $($(#[$doc])* pub(super) const fn $name(
            name: &'static str,
            takes: &'static [Parameter],
            meaning: &'static str,
            example: &'static str,
            make: Make,
        ) -> Described {
            entry($gives, name, takes, meaning, example, make)
        })*
    };
}

kinds_of_entries! {
    predicate: Type::Predicate;
    property: Type::Property;
    function: Type::Function;
    key: Type::Key;
    net: Type::Net;
    number: Type::Number;
}

impl Described {
    /// The same entry with aliases.
    pub(super) const fn or(mut self, aliases: &'static [&'static str]) -> Described {
        self.entry.aliases = aliases;
        self
    }

    /// The same entry with its description for IPv6.
    pub(super) const fn ipv6(mut self, meaning: &'static str) -> Described {
        self.ipv6 = meaning;
        self
    }

    /// The same entry, for these engines only.
    pub(super) const fn on(mut self, engines: Engines) -> Described {
        self.entry.engines = engines;
        self
    }
}
