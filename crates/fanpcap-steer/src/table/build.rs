//! How entries are written down.

use super::{Described, Engines, Entry, Kind, Make, Parameter, Type};

/// A parameter.
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
    /// An entry that is a predicate.
    predicate: Type::Predicate;
    /// An entry that is a property.
    property: Type::Property;
    /// An entry that is a function.
    function: Type::Function;
    /// An entry that is a key.
    key: Type::Key;
    /// An entry that is a net.
    net: Type::Net;
    /// An entry that is a number.
    number: Type::Number;
}

impl Described {
    /// The same with other names.
    pub(super) const fn or(mut self, aliases: &'static [&'static str]) -> Described {
        self.entry.aliases = aliases;
        self
    }

    /// The same with what it means for IPv6.
    pub(super) const fn ipv6(mut self, meaning: &'static str) -> Described {
        self.ipv6 = meaning;
        self
    }

    /// The same for these engines only.
    pub(super) const fn on(mut self, engines: Engines) -> Described {
        self.entry.engines = engines;
        self
    }
}
