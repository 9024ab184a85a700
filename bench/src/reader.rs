//! The reader: one C program on libpcap, run on our library or on the system's.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_testbed::member::Ended;
use fanpcap_testbed::{Member, Program, Scratch};
use serde::Deserialize;

use crate::libraries::{Libraries, Side};
use crate::refusal::Tally;
use crate::wire::Wire;

/// The settings of a handle, as an application sets them in libpcap.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// `pcap_set_snaplen`.
    pub(crate) snaplen: Option<u32>,
    /// `pcap_set_immediate_mode`.
    pub(crate) immediate: bool,
    /// `pcap_set_buffer_size`, in bytes.
    pub(crate) buffer: Option<u32>,
    /// `pcap_set_timeout`, in milliseconds.
    pub(crate) timeout: Option<u32>,
    /// `pcap_compile`, `pcap_setfilter`.
    #[serde(borrow)]
    pub(crate) filter: Option<&'static str>,
}

/// What a reader does.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// Prints the version of its library.
    Introduce,
    /// Counts packets until a signal.
    #[default]
    Count,
    /// Counts packets, and reads no byte of them.
    Skip,
    /// Counts packets, and burns this many nanoseconds of CPU time for each.
    Busy(u32),
    /// Sends the first bytes of each packet in UDP datagrams, as DiCAP does. Each datagram has the
    /// bytes of this many packets.
    Ship(u32),
    /// Counts packets by recvfrom(2), without libpcap and without a ring.
    Receive,
    /// Counts packets, and measures the age of each probe.
    Time,
    /// Works like `Time`, but polls the handle's descriptor without a time-out.
    TimePolling,
    /// Opens this many handles one after another, and closes each after its first packet.
    Open(u32),
}

/// A core of the bench.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Core {
    /// The core on which the generator sends and the kernel receives.
    Receiving,
    /// The other core.
    Other,
    /// Any core.
    Anywhere,
}

/// A reader's core and group.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Seat {
    pub(crate) place: Core,
    /// The group's number and its mode.
    #[serde(borrow)]
    pub(crate) fanout: Option<(u16, &'static str)>,
}

impl Seat {
    /// A reader without a group, on the core that is not the generator's.
    pub(crate) const ALONE: Self = Self {
        place: Core::Other,
        fanout: None,
    };

    /// The group's number.
    pub(crate) fn group(&self) -> Option<u16> {
        self.fanout.map(|(group, _)| group)
    }
}

/// The report that a reader prints at its end.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ReaderReport {
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
    /// CPU time since the handle was ready, in nanoseconds.
    #[serde(default)]
    pub(crate) cpu_ns: u64,
    /// Age of probes in the callback.
    pub(crate) latency_ns: Option<Times>,
    /// Times from the start of `pcap_open_live` until the handle is open and has its filter.
    pub(crate) open_ns: Option<Times>,
    /// Times from the start of opening to the end of the first packet's callback.
    pub(crate) first_ns: Option<Times>,
    /// Times of `pcap_close`.
    pub(crate) close_ns: Option<Times>,
}

impl ReaderReport {
    /// The reader's counters.
    pub(crate) fn tally(&self) -> Tally {
        Tally {
            received: self.received,
            dropped: self.dropped,
            delivered: self.delivered,
        }
    }
}

/// A summary of many durations, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Times {
    pub(crate) count: u64,
    pub(crate) p50: i64,
    pub(crate) p99: i64,
    pub(crate) max: i64,
}

/// The source text. It is part of the executable, because an installed command has no source tree.
const SOURCE: &str = include_str!("../c/reader.c");

/// Compiles a program of the bench against the system's libpcap, its headers and library.
pub(crate) fn compile(scratch: &Scratch, name: &str, text: &str) -> Result<PathBuf> {
    let source = scratch.file(&format!("{name}.c"));
    fs::write(&source, text).with_context(|| format!("writing {}", source.display()))?;
    let program = scratch.file(name);
    let done = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"])
        .args([source.as_os_str(), "-o".as_ref(), program.as_os_str()])
        .arg("-lpcap")
        .output()
        .with_context(|| {
            format!("running cc: the bench's {name} is a C program, so install a compiler (gcc)")
        })?;
    let complaint = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "compiling the bench's {name} (it needs libpcap's header, libpcap0.8-dev):\n{complaint}"
    );
    Ok(program)
}

/// The compiled reader.
#[derive(Debug)]
pub(crate) struct Reader {
    program: PathBuf,
    libraries: Libraries,
}

impl Reader {
    /// Compiles the reader.
    pub(crate) fn compile(scratch: &Scratch, libraries: Libraries) -> Result<Self> {
        let program = compile(scratch, "reader", SOURCE)?;
        Ok(Self { program, libraries })
    }

    /// The libraries.
    pub(crate) fn libraries(&self) -> &Libraries {
        &self.libraries
    }

    /// Starts the reader at the wire's far end, and waits until it is ready. `cpu` is `None` if the
    /// reader may run on any core.
    pub(crate) fn start(
        &self,
        wire: &Wire,
        what: (Side, Settings, Work),
        (cpu, fanout): (Option<usize>, Option<(u16, &str)>),
        config: Option<&Path>,
        scratch: &Scratch,
    ) -> Result<Member> {
        let (side, _, work) = what;
        let mut program = self.program(&side.device(wire.far()), what, cpu);
        program = match fanout {
            // The reader that uses recvfrom(2) joins the group itself, and has only the kernel's
            // own modes.
            Some((group, _)) if work == Work::Receive => program.args(["-g", &group.to_string()]),
            Some((group, mode)) => program.group(group, mode),
            None => program,
        };
        if let Some(config) = config {
            program = program.set("PCAP_CONFIG", config);
        }
        wire.at_far(|| program.start(scratch))
            .with_context(|| format!("a reader on {}", side.name()))
    }

    /// The reader on a device of the namespace in which it is started.
    pub(crate) fn program(
        &self,
        device: &str,
        (side, settings, work): (Side, Settings, Work),
        cpu: Option<usize>,
    ) -> Program {
        let cpu = cpu.map(|cpu| cpu.to_string());
        let program = self
            .libraries
            .program(side, &self.program, "ready", cpu.as_deref())
            .args(["-i", device])
            // A handle that falls back to another engine gives a warning. With -E the reader treats
            // the warning as an error.
            .args(side.names_engine().then_some("-E"));
        with(program, settings, work)
    }
}

/// The report of an ended reader; fails if it ran on the wrong library.
pub(crate) fn told(ended: &Ended, side: Side, libraries: &Libraries) -> Result<ReaderReport> {
    let said = ended.said.as_str();
    ensure!(
        ended.status.success(),
        "the reader on {} ended ({}):\n{said}",
        side.name(),
        ended.status
    );
    let line = said.lines().find(|line| line.starts_with('{'));
    let told: ReaderReport = line
        .and_then(|line| serde_json::from_str(line).ok())
        .with_context(|| format!("the reader's output has no report: {said:?}"))?;
    let file = told
        .library
        .canonicalize()
        .context("the reader's library")?;
    ensure!(
        libraries.is_library_of(side, std::slice::from_ref(&file)),
        "the reader for {} ran on {}",
        side.name(),
        file.display()
    );
    Ok(told)
}

fn with(program: Program, settings: Settings, work: Work) -> Program {
    let numbered = |flag: &str, number: Option<u32>| {
        number.map_or_else(Vec::new, |number| vec![flag.to_owned(), number.to_string()])
    };
    let program = program
        .args(numbered("-s", settings.snaplen))
        .args(numbered("-b", settings.buffer))
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
        Work::Skip => program.arg("-S"),
        Work::Busy(ns) => program.args(["-w", &ns.to_string()]),
        Work::Ship(headers) => program.args(["-H", &headers.to_string()]),
        Work::Receive => program.arg("-R"),
        Work::Time => program.arg("-L"),
        Work::TimePolling => program.args(["-L", "-P"]),
        Work::Open(count) => program.args(["-o", &count.to_string()]),
    }
}
