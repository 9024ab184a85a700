//! The two libraries that are compared, and processes started on one of them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use fanpcap_testkit::Program;
use serde::Serialize;

use crate::priority;

/// The library that a process runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    /// Our staged library.
    Ours,
    /// The system's libpcap.
    System,
}

impl Side {
    /// The side of a column with this key.
    pub(crate) fn of(key: &str) -> Self {
        if key == "system" {
            Self::System
        } else {
            Self::Ours
        }
    }

    /// Name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "fanpcap",
            Self::System => "libpcap",
        }
    }
}

/// Our library's directory, and its driver.
#[derive(Clone, Debug)]
pub(crate) struct Libraries {
    /// The directory of our library.
    pub(crate) ours: PathBuf,
    /// `PCAP_DRIVER` on our side, if set.
    pub(crate) driver: Option<String>,
}

impl Libraries {
    /// An application on one of the libraries that prints `ready` once it captures. It has the
    /// highest priority on its core.
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
            // An empty value counts as unset.
            (Side::System, _) => started.set("LD_LIBRARY_PATH", OsStr::new("")),
        }
    }
}
