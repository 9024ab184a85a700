//! The engines that settings can name, with their properties: a table.

use std::fmt;

/// The name of an engine: the prefix of a device, or the value of `driver@DEV` and PCAP_DRIVER.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Driver(&'static Row);

#[derive(PartialEq, Eq)]
struct Row {
    name: &'static str,
    kind: Kind,
    /// Whether the prefix may be used without a device. Without a device, the handle captures on
    /// its group's device.
    names_group: bool,
    /// Whether the engine can capture packets that the host sends.
    captures_sent: bool,
    /// The engine that the name means, if that engine has another name.
    means: Option<&'static str>,
}

/// The way in which an engine takes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Packet sockets, whose rings are read (packet(7)).
    Sockets,
    /// The engine attaches to devices and has its own rings. It supports steering programs and
    /// classes of members, and may keep packets from the host. The crate `fanpcap-engines` contains
    /// the engine of this name.
    Devices,
    /// A process of its own, the poller, takes the packets from the device and writes them into the
    /// handle's pool. The engine supports steering programs and classes of members. The crate
    /// `fanpcap-engines` contains the engine of this name.
    Polled,
    /// A kernel module of others shares the packets of a group, and its own library reads them. The
    /// handle enters a group as at a poller. The crate `fanpcap-engines` contains the engine of
    /// this name.
    Library,
}

/// The engines, in the order in which messages list them.
static TABLE: [Row; 9] = [
    row("tpacket", Kind::Sockets),
    row("xdp", Kind::Devices),
    row("packet", Kind::Polled),
    Row {
        captures_sent: false,
        ..row("afxdp", Kind::Polled)
    },
    Row {
        captures_sent: false,
        ..row("dpdk", Kind::Polled)
    },
    Row {
        captures_sent: false,
        ..row("netmap", Kind::Polled)
    },
    row("pfring", Kind::Library),
    Row {
        captures_sent: false,
        ..row("zc", Kind::Polled)
    },
    Row {
        names_group: true,
        means: Some("xdp"),
        ..row("pfq", Kind::Devices)
    },
];

const fn row(name: &'static str, kind: Kind) -> Row {
    Row {
        name,
        kind,
        names_group: false,
        captures_sent: true,
        means: None,
    }
}

impl Driver {
    /// All engines, in the order in which messages list them.
    pub fn all() -> impl Iterator<Item = Driver> {
        TABLE.iter().map(Driver)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The engine with this lower-case name.
    pub fn named(name: &str) -> Option<Driver> {
        Driver::all().find(|engine| engine.name() == name)
    }

    /// The engine that the name means: PFQ's name means the engine that does what PFQ did.
    #[must_use]
    pub fn engine(self) -> Driver {
        self.0.means.and_then(Driver::named).unwrap_or(self)
    }

    /// The way in which the engine takes packets.
    pub fn kind(self) -> Kind {
        self.0.kind
    }

    /// Whether the engine reads the rings of packet sockets.
    pub fn is_rings(self) -> bool {
        self.kind() == Kind::Sockets
    }

    /// Whether the engine attaches to devices and has its own rings.
    pub fn takes_devices(self) -> bool {
        self.kind() == Kind::Devices
    }

    /// Whether others than the members take the engine's packets from the device, and share them:
    /// a poller, or a kernel module of others.
    pub fn is_polled(self) -> bool {
        matches!(self.kind(), Kind::Polled | Kind::Library)
    }

    /// Whether a poller takes the engine's packets from the device.
    pub fn has_poller(self) -> bool {
        self.kind() == Kind::Polled
    }

    /// Whether the prefix may stand without a device.
    pub fn names_group(self) -> bool {
        self.0.names_group
    }

    /// Whether the engine can capture packets that the host sends.
    pub fn captures_sent(self) -> bool {
        self.0.captures_sent
    }

    /// The names of the engines that attach to devices, for messages.
    pub fn of_devices() -> String {
        let is_taker = |it: &Driver| it.takes_devices() && it.engine() == *it;
        let takers = Driver::all().filter(is_taker);
        let names: Vec<&str> = takers.map(Driver::name).collect();
        names.join(" or ")
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
