//! The two libraries that are compared, and processes started on one of them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use fanpcap_testbed::Program;
use serde::Deserialize;

use crate::priority;

/// The libpcap that a process loads. The variant `Xdp` also sets the engine.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    /// Our staged library.
    #[default]
    Ours,
    /// Our staged library on its XDP engine.
    Xdp(Host),
    /// The system's libpcap.
    System,
}

/// Whether the host also gets the packets that the XDP engine captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Host {
    /// All packets: `XDP_PASS`.
    All,
    /// No packets: `steal@DEVICE = yes`, `XDP_DROP`.
    Nothing,
}

impl Side {
    /// The side of a column with this key.
    pub(crate) fn of(key: &str) -> Self {
        match key {
            "system" => Self::System,
            "xdp" => Self::Xdp(Host::All),
            "steal" => Self::Xdp(Host::Nothing),
            _ => Self::Ours,
        }
    }

    /// Whether a process on this side runs on our library.
    pub(crate) fn is_ours(self) -> bool {
        self != Self::System
    }

    /// Name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "fanpcap",
            Self::Xdp(_) => "fanpcap, xdp",
            Self::System => "libpcap",
        }
    }
}

/// Our library's directory, and its settings.
#[derive(Clone, Debug)]
pub(crate) struct Libraries {
    /// The directory of our library.
    pub(crate) ours: PathBuf,
    /// `PCAP_DRIVER` on our side, if set.
    pub(crate) driver: Option<String>,
    /// A config file with which the host gets no packet of the reader's device.
    pub(crate) steal: PathBuf,
}

/// `PCAP_DRIVER` for the XDP engine.
const XDP: &str = "xdp";

impl Libraries {
    /// An application on one of the libraries, with the highest priority on its core. It prints
    /// `ready` as soon as it captures.
    pub(crate) fn program(
        &self,
        side: Side,
        program: &Path,
        ready: &'static str,
        cpu: Option<&str>,
    ) -> Program {
        let started = priority::program(&self.ours, program, ready, cpu);
        match (side, &self.driver) {
            (Side::Ours, Some(driver)) => started.set("PCAP_DRIVER", driver),
            (Side::Ours, None) => started,
            (Side::Xdp(Host::All), _) => started.set("PCAP_DRIVER", XDP),
            (Side::Xdp(Host::Nothing), _) => started
                .set("PCAP_DRIVER", XDP)
                .set("PCAP_CONFIG", &self.steal),
            // An empty value counts as unset.
            (Side::System, _) => started.set("LD_LIBRARY_PATH", OsStr::new("")),
        }
    }

    /// Whether a process on this side attaches an XDP program to its device.
    pub(crate) fn attach_program(&self, side: Side) -> bool {
        match side {
            Side::Ours => self.driver.as_deref() == Some(XDP),
            Side::Xdp(_) => true,
            Side::System => false,
        }
    }
}
