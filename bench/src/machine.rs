//! Describes the machine on which the figures are measured.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use fanpcap_linux::wait::clock;
use serde::Serialize;

use crate::bench::Bench;
use crate::caches;
use crate::generator::Way;
use crate::libraries::Side;

/// Time and options of a session; the same for all rows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Session {
    /// The time when the bench began, in UTC.
    pub(crate) date: String,
    /// Version of this bench.
    pub(crate) version: &'static str,
    /// Commit of the sources, if `FANPCAP_COMMIT` was set in the build.
    pub(crate) commit: Option<&'static str>,
    /// Duration of a flood.
    pub(crate) milliseconds: u64,
    /// Rounds of each measure that is not constant.
    pub(crate) rounds: u32,
    /// Whether this is a quick check with short runs, whose figures are not results.
    pub(crate) quick: bool,
}

impl Session {
    /// A session that starts now.
    pub(crate) fn begin(milliseconds: u64, rounds: u32, quick: bool) -> Self {
        Self {
            date: clock::rfc3339(UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())),
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("FANPCAP_COMMIT"),
            milliseconds,
            rounds,
            quick,
        }
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, version {}", self.date, self.version)?;
        if let Some(commit) = self.commit {
            write!(f, ", commit {commit}")?;
        }
        write!(
            f,
            "\n{} rounds of runs, floods of {} ms: median (least-most) [quartiles]",
            self.rounds, self.milliseconds
        )
    }
}

/// Facts of the machine that a reader of the figures needs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cpus: usize,
    kernel: String,
    /// The CPUs of generator and reader, and their relation.
    used: String,
    /// The data caches of these CPUs.
    caches: String,
    /// Load averages over 1, 5 and 15 minutes at the start.
    load: String,
    /// Whether runs count although other processes may have disturbed them.
    shared: bool,
    /// `PCAP_DRIVER` on our side.
    driver: String,
    generator: &'static str,
    /// `pcap_lib_version()` of our library, and of the system's.
    fanpcap: String,
    libpcap: String,
    /// The directory of another build of our library, and its `pcap_lib_version()`.
    other: Option<(PathBuf, String)>,
    /// The percentage of a CPU that other processes had in no run that counts.
    foreign: f64,
}

impl Machine {
    /// Describes this machine.
    pub(crate) fn describe(bench: &Bench) -> Result<Self> {
        let first_of = |path, words| -> Result<String> {
            let text = fs::read_to_string(path)?;
            let words: Vec<&str> = text.split_whitespace().take(words).collect();
            Ok(words.join(" "))
        };
        Ok(Self {
            cpu: cpu_model()?,
            cpus: thread::available_parallelism()?.get(),
            kernel: first_of("/proc/sys/kernel/osrelease", 1)?,
            used: bench.cpus().describe(),
            caches: caches::describe(bench.cpus()),
            load: first_of("/proc/loadavg", 3)?,
            shared: bench.shared,
            driver: bench
                .libraries()
                .driver
                .clone()
                .unwrap_or_else(|| "none".to_owned()),
            generator: match bench.way {
                Way::LiveFrames => "live frames",
                Way::Sendmmsg => "sendmmsg",
            },
            fanpcap: bench.version(Side::Ours)?,
            libpcap: bench.version(Side::System)?,
            other: other(bench)?,
            foreign: (bench.foreign * 100.0).round(),
        })
    }
}

impl Machine {
    /// Captions of a picture: a line for the machine and a line for the session.
    pub(crate) fn captions(&self, session: &Session) -> [String; 2] {
        let commit = session.commit.map(|commit| format!(", commit {commit}"));
        let driver = &self.driver;
        [
            format!(
                "{}, {} CPUs, Linux {}; fanpcap {}{}, PCAP_DRIVER {driver}",
                self.cpu,
                self.cpus,
                self.kernel,
                session.version,
                commit.unwrap_or_default()
            ),
            format!(
                "{}; {} rounds, floods of {} ms; bar: median, line: least to most",
                session.date, session.rounds, session.milliseconds
            ),
        ]
    }

    /// The warning for figures that are not results; `None` for results.
    pub(crate) fn warning(&self, session: &Session) -> Option<String> {
        let mut why = Vec::new();
        if session.quick {
            why.push("--quick: too few and too short runs");
        }
        if self.shared {
            why.push("--shared: other processes used the CPUs");
        }
        (!why.is_empty()).then(|| format!("NOT A RESULT ({})", why.join("; ")))
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {} CPUs, Linux {}", self.cpu, self.cpus, self.kernel)?;
        writeln!(f, "CPUs of generator and reader: {}", self.used)?;
        writeln!(f, "caches of each: {}", self.caches)?;
        writeln!(f, "load {}; generator: {}", self.load, self.generator)?;
        if self.shared {
            writeln!(f, "CPUs shared with other processes: not a result")?;
        }
        writeln!(f, "fanpcap: {}, PCAP_DRIVER {}", self.fanpcap, self.driver)?;
        if let Some((directory, version)) = &self.other {
            writeln!(f, "the other build: {version}, in {}", directory.display())?;
        }
        write!(f, "libpcap: {}", self.libpcap)
    }
}

/// The directory and the version of the other build.
fn other(bench: &Bench) -> Result<Option<(PathBuf, String)>> {
    let directory = bench.libraries().other.clone();
    let directory = directory.map(|it| Ok((it, bench.version(Side::Other)?)));
    directory.transpose()
}

/// The name of the first CPU in /proc/cpuinfo; some architectures have none.
fn cpu_model() -> Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let name = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    Ok(name.unwrap_or_else(|| std::env::consts::ARCH.to_owned()))
}
