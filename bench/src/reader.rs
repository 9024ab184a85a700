//! The reader: one C program on libpcap, run on our library or on the system's.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::member::Ended;
use fanpcap_testkit::{Member, Program, Scratch};
use serde::{Deserialize, Serialize};

use crate::priority;
use crate::wire::Wire;

/// The library that a reader runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    /// Ours, as staged.
    Ours,
    /// The system's libpcap.
    System,
}

/// What a program asks of libpcap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Settings {
    /// `pcap_set_snaplen`.
    pub(crate) snaplen: Option<u32>,
    /// `pcap_set_immediate_mode`.
    pub(crate) immediate: bool,
    /// `pcap_set_timeout`, in milliseconds.
    pub(crate) timeout: Option<u32>,
    /// `pcap_compile`, `pcap_setfilter`.
    pub(crate) filter: Option<&'static str>,
}

impl Settings {
    /// For people.
    pub(crate) fn name(self) -> String {
        let set = [
            self.snaplen.map(|bytes| format!("snaplen {bytes}")),
            self.immediate.then(|| "immediate mode".to_owned()),
            self.timeout.map(|ms| format!("timeout {ms} ms")),
            self.filter.map(|filter| format!("filter {filter:?}")),
        ];
        let set: Vec<String> = set.into_iter().flatten().collect();
        if set.is_empty() {
            "defaults".to_owned()
        } else {
            set.join(", ")
        }
    }
}

/// What a reader does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Tells which library it runs on.
    Introduce,
    /// Counts packets until it is told to stop.
    Count,
    /// The same, and measures how old each probe is.
    Time,
    /// Opens so many handles one after another, each up to its first packet.
    Open(u32),
}

/// What a reader tells at its end.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Told {
    library: PathBuf,
    /// `pcap_lib_version()`.
    pub(crate) version: String,
    /// Packets that reached the callback.
    #[serde(default)]
    pub(crate) delivered: u64,
    /// `ps_recv`.
    #[serde(default)]
    pub(crate) received: u64,
    /// `ps_drop`.
    #[serde(default)]
    pub(crate) dropped: u64,
    /// Since the handle was ready.
    #[serde(default)]
    pub(crate) cpu_ns: u64,
    /// Age of probes in the callback.
    pub(crate) latency_ns: Option<Times>,
    /// `pcap_open_live`, and the filter if there is one.
    pub(crate) open_ns: Option<Times>,
    /// The same up to the end of the first packet's callback.
    pub(crate) first_ns: Option<Times>,
    /// `pcap_close`.
    pub(crate) close_ns: Option<Times>,
}

/// Many times, summed up, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) p50: i64,
    pub(crate) p99: i64,
}

/// The program, and where it runs.
#[derive(Debug)]
pub(crate) struct Reader {
    program: PathBuf,
    cpu: usize,
    /// `PCAP_DRIVER` on our side, if any.
    driver: Option<String>,
}

impl Reader {
    /// Compiles it, against the system's headers and library.
    pub(crate) fn compile(scratch: &Scratch, cpu: usize, driver: Option<String>) -> Result<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/reader.c");
        let program = scratch.file("reader");
        let done = Command::new("cc")
            .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"])
            .args([source.as_os_str(), "-o".as_ref(), program.as_os_str()])
            .arg("-lpcap")
            .output()
            .context("running cc")?;
        let complaint = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success(),
            "cc {} (it needs libpcap's header, libpcap0.8-dev):\n{complaint}",
            source.display()
        );
        Ok(Self {
            program,
            cpu,
            driver,
        })
    }

    /// Starts it at the wire's far end; it is ready when this returns.
    pub(crate) fn start(
        &self,
        wire: &Wire,
        side: Side,
        settings: Settings,
        work: Work,
        scratch: &Scratch,
    ) -> Result<Member> {
        let program = priority::program(&self.program, "ready")?.args([
            "-i",
            wire.far(),
            "-c",
            &self.cpu.to_string(),
        ]);
        let program = self.on(side, with(program, settings, work));
        wire.at_far(|| program.start(scratch))
            .with_context(|| format!("a reader on {}", side.name()))
    }

    fn on(&self, side: Side, program: Program) -> Program {
        match (side, &self.driver) {
            (Side::Ours, Some(driver)) => program.set("PCAP_DRIVER", driver),
            (Side::Ours, None) => program,
            // Empty, it counts as unset.
            (Side::System, _) => program.set("LD_LIBRARY_PATH", ""),
        }
    }
}

/// What an ended reader tells, once it is sure that it ran on the right library.
pub(crate) fn told(ended: &Ended, side: Side) -> Result<Told> {
    let said = ended.said.as_str();
    ensure!(
        ended.status.success(),
        "the reader on {} ended ({}):\n{said}",
        side.name(),
        ended.status
    );
    let line = said.lines().find(|line| line.starts_with('{'));
    let told: Told = line
        .and_then(|line| serde_json::from_str(line).ok())
        .with_context(|| format!("the reader said {said:?}"))?;
    let file = told
        .library
        .canonicalize()
        .context("the reader's library")?;
    let is_ours = file.starts_with(library_dir()?);
    ensure!(
        is_ours == (side == Side::Ours),
        "the reader for {} ran on {}",
        side.name(),
        file.display()
    );
    Ok(told)
}

impl Side {
    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "fanpcap",
            Self::System => "libpcap",
        }
    }
}

fn with(program: Program, settings: Settings, work: Work) -> Program {
    let numbered = |flag: &str, number: Option<u32>| {
        number.map_or_else(Vec::new, |number| vec![flag.to_owned(), number.to_string()])
    };
    let program = program
        .args(numbered("-s", settings.snaplen))
        .args(numbered("-t", settings.timeout))
        .args(settings.immediate.then_some("-I"))
        .args(
            settings
                .filter
                .map(|filter| [OsStr::new("-f"), OsStr::new(filter)])
                .into_iter()
                .flatten(),
        );
    match work {
        Work::Introduce => program.arg("-V"),
        Work::Count => program,
        Work::Time => program.arg("-L"),
        Work::Open(count) => program.args(["-o", &count.to_string()]),
    }
}
