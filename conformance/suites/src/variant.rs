//! What a suite runs on: the system's libpcap, ours, ours with its own ring reader.

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
}

impl Variant {
    pub(crate) const ALL: [Self; 3] = [Self::System, Self::Staged, Self::Tpacket];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Staged => "staged",
            Self::Tpacket => "tpacket",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variant| variant.name() == name)
    }

    /// Makes `command` load this variant's library from `staged`, whatever is set around us.
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
        if self == Self::Tpacket {
            command.env("PCAP_DRIVER", "tpacket");
        }
    }
}
