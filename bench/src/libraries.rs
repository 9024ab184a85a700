//! The libraries that are compared, and processes started on one of them.

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
    /// Another build of our library, in the directory that `--other` names.
    Other,
    /// The other build on its XDP engine.
    OtherXdp(Host),
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
            "other_xdp" => Self::OtherXdp(Host::All),
            "other_steal" => Self::OtherXdp(Host::Nothing),
            _ => Self::Ours,
        }
    }

    /// What the host gets of the packets that the XDP engine captures; `None` on packet sockets.
    pub(crate) fn on_xdp(self) -> Option<Host> {
        match self {
            Self::Xdp(host) | Self::OtherXdp(host) => Some(host),
            Self::Ours | Self::Other | Self::System => None,
        }
    }

    /// Name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "fanpcap",
            Self::Xdp(_) => "fanpcap, xdp",
            Self::Other => "the other build",
            Self::OtherXdp(_) => "the other build, xdp",
            Self::System => "libpcap",
        }
    }
}

/// Our library's directory, and its settings.
#[derive(Clone, Debug)]
pub(crate) struct Libraries {
    /// The directory of our library.
    pub(crate) ours: PathBuf,
    /// The directory of another build of our library, if the user names one.
    pub(crate) other: Option<PathBuf>,
    /// `PCAP_DRIVER` on our side, if set; the other build has the same.
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
        let directory = self.directory(side);
        let started = priority::program(directory.unwrap_or(&self.ours), program, ready, cpu);
        match (side.on_xdp(), &self.driver) {
            // An empty value counts as unset.
            _ if directory.is_none() => started.set("LD_LIBRARY_PATH", OsStr::new("")),
            (Some(Host::All), _) => started.set("PCAP_DRIVER", XDP),
            (Some(Host::Nothing), _) => started
                .set("PCAP_DRIVER", XDP)
                .set("PCAP_CONFIG", &self.steal),
            (None, Some(driver)) => started.set("PCAP_DRIVER", driver),
            (None, None) => started,
        }
    }

    /// The directory of a side's library; `None` for the system's library.
    ///
    /// # Panics
    /// The side is the other build, and there is none. Columns of the other build need one.
    fn directory(&self, side: Side) -> Option<&Path> {
        match side {
            Side::Ours | Side::Xdp(_) => Some(&self.ours),
            Side::Other | Side::OtherXdp(_) => {
                Some(self.other.as_deref().expect("there is another build"))
            }
            Side::System => None,
        }
    }

    /// Whether a process that has loaded these files runs on the library of `side`, and on no other
    /// build of ours.
    pub(crate) fn is_library_of(&self, side: Side, files: &[PathBuf]) -> bool {
        let own = self.directory(side);
        let ours = [Some(self.ours.as_path()), self.other.as_deref()];
        let loaded = |directory: &Path| files.iter().any(|file| file.starts_with(directory));
        let builds = ours.into_iter().flatten();
        own.is_none_or(loaded) && builds.filter(|it| Some(*it) != own).all(|it| !loaded(it))
    }

    /// Whether a process on this side attaches an XDP program to its device.
    pub(crate) fn attach_program(&self, side: Side) -> bool {
        match side {
            Side::Ours | Side::Other => self.driver.as_deref() == Some(XDP),
            Side::Xdp(_) | Side::OtherXdp(_) => true,
            Side::System => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_runs_on_the_library_of_its_side_only() {
        let libraries = Libraries {
            ours: "/new/lib".into(),
            other: Some("/old/lib".into()),
            driver: None,
            steal: PathBuf::new(),
        };
        let sides = [Side::of("steal"), Side::of("other_steal"), Side::System];
        let runs_on = |directory: &str| {
            let file = Path::new(directory).join("libpcap.so.0.8");
            sides.map(|side| libraries.is_library_of(side, std::slice::from_ref(&file)))
        };
        assert_eq!(runs_on("/new/lib"), [true, false, false]);
        assert_eq!(runs_on("/old/lib"), [false, true, false]);
        assert_eq!(runs_on("/usr/lib"), [false, false, true]);
    }

    #[test]
    fn keys_name_engine_and_host() {
        let on_xdp = |key| Side::of(key).on_xdp();
        assert_eq!(on_xdp("other_steal"), Some(Host::Nothing));
        assert_eq!(on_xdp("other_xdp"), Some(Host::All));
        assert_eq!(on_xdp("system"), None);
    }
}
