//! The two libraries that are compared, and programs started on one of them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use fanpcap_testkit::Program;
use serde::Serialize;

use crate::priority;

/// The library that a program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    /// Ours, as staged.
    Ours,
    /// The system's libpcap.
    System,
}

impl Side {
    /// The side that a column of this key is about.
    pub(crate) fn of(key: &str) -> Self {
        if key == "system" {
            Self::System
        } else {
            Self::Ours
        }
    }

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "fanpcap",
            Self::System => "libpcap",
        }
    }
}

/// Where ours is, and how it is told to capture.
#[derive(Clone, Debug)]
pub(crate) struct Libraries {
    /// The directory of our library.
    pub(crate) ours: PathBuf,
    /// `PCAP_DRIVER` on our side, if any.
    pub(crate) driver: Option<String>,
}

impl Libraries {
    /// A program that prints `ready` once it is, on one of them, before all others on its core.
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
            // Empty, it counts as unset.
            (Side::System, _) => started.set("LD_LIBRARY_PATH", OsStr::new("")),
        }
    }
}
