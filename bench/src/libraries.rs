//! The libraries that are compared, and processes started on one of them.

use std::env;
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
    /// Our staged library as a member of a poller, which the run starts.
    Poller(Source),
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

/// How a poller takes packets from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// By a packet socket.
    Packet,
    /// By an AF_XDP socket for each receive queue.
    Afxdp,
    /// By DPDK.
    Dpdk,
}

impl Source {
    /// The device as a poller and its members name it, such as `packet:eth0`.
    pub(crate) fn place(self, device: &str) -> String {
        let engine = match self {
            Self::Packet => "packet",
            Self::Afxdp => "afxdp",
            Self::Dpdk => "dpdk",
        };
        format!("{engine}:{device}")
    }
}

impl Side {
    /// The side of a column with this key.
    pub(crate) fn of(key: &str) -> Self {
        match key {
            "system" => Self::System,
            "xdp" => Self::Xdp(Host::All),
            "steal" => Self::Xdp(Host::Nothing),
            "packet" => Self::Poller(Source::Packet),
            "afxdp" => Self::Poller(Source::Afxdp),
            "other_xdp" => Self::OtherXdp(Host::All),
            "other_steal" => Self::OtherXdp(Host::Nothing),
            _ => Self::Ours,
        }
    }

    /// What the host gets of the packets that the XDP engine captures; `None` on packet sockets.
    pub(crate) fn on_xdp(self) -> Option<Host> {
        match self {
            Self::Xdp(host) | Self::OtherXdp(host) => Some(host),
            Self::Ours | Self::Poller(_) | Self::Other | Self::System => None,
        }
    }

    /// How the poller of this side takes packets; `None` if the side has no poller.
    pub(crate) fn source(self) -> Option<Source> {
        match self {
            Self::Poller(source) => Some(source),
            Self::Ours | Self::Xdp(_) | Self::Other | Self::OtherXdp(_) | Self::System => None,
        }
    }

    /// The name by which an application on this side opens a device.
    pub(crate) fn device(self, device: &str) -> String {
        let source = self.source();
        source.map_or_else(|| device.to_owned(), |source| source.place(device))
    }

    /// Whether a handle on this side could fall back to another engine, with a warning.
    pub(crate) fn names_engine(self) -> bool {
        self.on_xdp().is_some() || self.source().is_some()
    }

    /// Name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "fanpcap",
            Self::Xdp(_) => "fanpcap, xdp",
            Self::Poller(Source::Packet) => "fanpcap, packet",
            Self::Poller(Source::Afxdp) => "fanpcap, afxdp",
            Self::Poller(Source::Dpdk) => "fanpcap, dpdk",
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

/// How many directories at most the library's directory is below the prefix that also has `bin`:
/// `PREFIX/lib/x86_64-linux-gnu/fanpcap`.
const LEVELS: usize = 3;

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
            // The name of the device names the engine.
            _ if side.source().is_some() => started,
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
            Side::Ours | Side::Xdp(_) | Side::Poller(_) => Some(&self.ours),
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

    /// The command `fanpcap` that is installed or staged with our library; `None` if there is none.
    pub(crate) fn command(&self) -> Option<PathBuf> {
        let above = self.ours.ancestors().skip(1).take(LEVELS);
        let mut commands = above.map(|prefix| prefix.join("bin/fanpcap"));
        commands.find(|command| command.is_file())
    }

    /// The plugin for DPDK that the command finds; `None` if there is none.
    pub(crate) fn dpdk_plugin(&self) -> Option<PathBuf> {
        let named = env::var_os("FANPCAP_DPDK_PLUGIN").map(PathBuf::from);
        let command = self.command().and_then(|it| it.canonicalize().ok());
        let directory = command.as_deref().and_then(Path::parent);
        let beside = ["", "../libexec/fanpcap"].into_iter();
        let beside = beside.filter_map(|it| Some(directory?.join(it).join("fanpcap-dpdk.so")));
        named.into_iter().chain(beside).find(|it| it.is_file())
    }

    /// Whether a process on this side attaches an XDP program to its device.
    pub(crate) fn attach_program(&self, side: Side) -> bool {
        match side {
            Side::Ours | Side::Other => self.driver.as_deref() == Some(XDP),
            Side::Xdp(_) | Side::OtherXdp(_) | Side::Poller(Source::Afxdp) => true,
            Side::System | Side::Poller(Source::Packet | Source::Dpdk) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
    fn the_command_is_beside_the_library() {
        let scratch = fanpcap_testbed::Scratch::new().unwrap();
        let command = scratch.file("usr/bin/fanpcap");
        let found = |below: &str| {
            let libraries = Libraries {
                ours: scratch.file("usr").join(below),
                other: None,
                driver: None,
                steal: PathBuf::new(),
            };
            libraries.command()
        };
        assert_eq!(found("lib/x86_64-linux-gnu/fanpcap"), None);
        fs::create_dir_all(scratch.file("usr/bin")).unwrap();
        fs::write(&command, "").unwrap();
        assert_eq!(found("lib"), Some(command.clone()));
        assert_eq!(found("lib/x86_64-linux-gnu/fanpcap"), Some(command));
        assert_eq!(found("lib/a/b/c"), None);
    }

    #[test]
    fn a_poller_has_the_device_that_its_name_says() {
        assert_eq!(Side::of("afxdp").device("eth0"), "afxdp:eth0");
        assert_eq!(Side::of("packet").device("eth0"), "packet:eth0");
        assert_eq!(Side::of("steal").device("eth0"), "eth0");
    }

    #[test]
    fn keys_name_engine_and_host() {
        let on_xdp = |key| Side::of(key).on_xdp();
        assert_eq!(on_xdp("other_steal"), Some(Host::Nothing));
        assert_eq!(on_xdp("other_xdp"), Some(Host::All));
        assert_eq!(on_xdp("system"), None);
    }
}
