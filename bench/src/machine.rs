//! The machine that the figures are of.

use std::fmt;
use std::fs;
use std::thread;

use anyhow::Result;
use serde::Serialize;

use crate::bench::Bench;
use crate::date;
use crate::generator::Way;
use crate::libraries::Side;

/// When and how it was measured; the same for all rows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Session {
    /// In UTC, when the bench began.
    pub(crate) date: String,
    /// Of this program.
    pub(crate) version: &'static str,
    /// Of its sources, if it was built with `FANPCAP_COMMIT` set.
    pub(crate) commit: Option<&'static str>,
    /// How long a flood lasts.
    pub(crate) milliseconds: u64,
    /// Of each measure that is not a constant.
    pub(crate) rounds: u32,
    /// Short runs, to see that it works: their figures are no result.
    pub(crate) quick: bool,
}

impl Session {
    /// This one, from now on.
    pub(crate) fn begin(milliseconds: u64, rounds: u32, quick: bool) -> Self {
        Self {
            date: date::now(),
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
            "\n{} rounds of runs, floods of {} ms: median (least-most)",
            self.rounds, self.milliseconds
        )
    }
}

/// What a reader of the figures must know of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    cpus: usize,
    kernel: String,
    /// The generator's and the reader's, and how they are related.
    used: String,
    /// Averages of 1, 5 and 15 minutes, when the bench began.
    load: String,
    /// Whether runs count that others may have disturbed.
    shared: bool,
    /// `PCAP_DRIVER` on our side.
    driver: String,
    generator: &'static str,
    /// `pcap_lib_version()` of both sides.
    fanpcap: String,
    libpcap: String,
}

impl Machine {
    /// The one that this runs on.
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
        })
    }
}

impl Machine {
    /// What a picture must tell of the machine and the session, a line each.
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

    /// Why the figures are no result, where they are none.
    pub(crate) fn warning(&self, session: &Session) -> Option<String> {
        let mut why = Vec::new();
        if session.quick {
            why.push("--quick: too few and too short runs");
        }
        if self.shared {
            why.push("--shared: others used the CPUs");
        }
        (!why.is_empty()).then(|| format!("NOT A RESULT ({})", why.join("; ")))
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {} CPUs, Linux {}", self.cpu, self.cpus, self.kernel)?;
        writeln!(f, "CPUs of generator and reader: {}", self.used)?;
        writeln!(f, "load {}; generator: {}", self.load, self.generator)?;
        if self.shared {
            writeln!(f, "CPUs shared with others: these are no figures to keep")?;
        }
        writeln!(f, "fanpcap: {}, PCAP_DRIVER {}", self.fanpcap, self.driver)?;
        write!(f, "libpcap: {}", self.libpcap)
    }
}

/// As /proc/cpuinfo calls the first one; not every architecture has a name there.
fn cpu_model() -> Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let name = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    Ok(name.unwrap_or_else(|| std::env::consts::ARCH.to_owned()))
}
