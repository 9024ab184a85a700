//! The library under a suite: the system's libpcap, ours, or ours with one of its engines.

use std::env;
use std::path::Path;
use std::process::Command;

/// A library and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// The system's libpcap.
    System,
    /// Ours, with nothing set.
    Staged,
    /// Ours, with `PCAP_DRIVER=tpacket`.
    Tpacket,
    /// Ours, with `PCAP_DRIVER=xdp`.
    Xdp,
}

impl Variant {
    pub(crate) const ALL: [Self; 4] = [Self::System, Self::Staged, Self::Tpacket, Self::Xdp];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Staged => "staged",
            Self::Tpacket => "tpacket",
            Self::Xdp => "xdp",
        }
    }

    /// The engine that the variant's environment selects.
    pub(crate) fn driver(self) -> Option<&'static str> {
        match self {
            Self::System | Self::Staged => None,
            Self::Tpacket | Self::Xdp => Some(self.name()),
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variant| variant.name() == name)
    }

    /// Makes `command` load this variant's library from `staged`, even if this process's
    /// environment sets another library.
    pub(crate) fn apply(self, command: &mut Command, staged: &Path) {
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("FANPCAP_") || text.starts_with("PCAP_") {
                command.env_remove(&name);
            }
        }
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH"] {
            command.env_remove(name);
        }
        if self != Self::System {
            command.env("LD_LIBRARY_PATH", staged);
        }
        if let Some(driver) = self.driver() {
            command.env("PCAP_DRIVER", driver);
        }
    }
}
