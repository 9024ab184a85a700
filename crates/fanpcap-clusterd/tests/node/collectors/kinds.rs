//! Four collectors of other projects: how each is installed, how it runs, and what it writes.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use serde_json::Value;

use super::sent::Sums;
use crate::program::Program;

/// A collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// pmacct's collector, from Debian.
    Nfacctd,
    /// nfdump's collector, from Debian.
    Nfcapd,
    /// A collector that is a Go module.
    Goflow2,
    /// A collector that this test builds on a Python package.
    Ipfix,
}

/// The packages to install, with their versions, in the form that Go and pip take.
const GOFLOW2: &str = "github.com/netsampler/goflow2/v2/cmd/goflow2@v2.2.1";
const IPFIX: &str = "ipfix==0.9.7";

/// The address at which `GoFlow2` serves its metrics.
const GOFLOW2_METRICS: &str = "127.0.0.1:8080";

/// The packets or flows that a collector has written, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Written {
    pub(super) packets: u64,
    pub(super) octets: u64,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Nfacctd, Self::Nfcapd, Self::Goflow2, Self::Ipfix];

    /// Installs the collector, if it is not installed.
    ///
    /// # Errors
    /// Fails if the collector can't be installed here.
    pub(super) fn install(self) -> Result<()> {
        match self {
            Self::Nfacctd => run(Command::new("nfacctd").arg("-V")).context("package pmacct"),
            Self::Nfcapd => ["nfcapd", "nfdump"]
                .iter()
                .try_for_each(|name| run(Command::new(name).arg("-V")))
                .context("package nfdump"),
            Self::Goflow2 if goflow2().exists() => Ok(()),
            Self::Goflow2 => {
                let mut go = Command::new("go");
                run(go.args(["install", GOFLOW2]).env("GOBIN", installed()))
            }
            Self::Ipfix if python().join("ipfix").exists() => Ok(()),
            Self::Ipfix => {
                let mut pip = Command::new("python3");
                pip.args(["-m", "pip", "install", "--no-deps", "--target"]);
                run(pip.arg(python()).arg(IPFIX))
            }
        }
    }

    pub(super) fn port(self) -> u16 {
        match self {
            Self::Nfacctd => 2055,
            Self::Nfcapd => 2056,
            Self::Goflow2 => 2057,
            Self::Ipfix => 2058,
        }
    }

    /// The URL for the analyzer's option `--export`.
    pub(super) fn url(self) -> String {
        let scheme = match self {
            Self::Nfacctd | Self::Goflow2 => "ipfix",
            Self::Nfcapd => "ipfix-flows",
            Self::Ipfix => "ipfix+tcp",
        };
        format!("{scheme}://127.0.0.1:{}", self.port())
    }

    /// How many of these frames are exported to the collector. Only IP packets can be exported as
    /// flows.
    pub(super) fn exported(self, sums: &Sums) -> u64 {
        if self == Self::Nfcapd {
            sums.ip_packets
        } else {
            sums.frames
        }
    }

    /// What the collector must write for these frames. Two collectors count the length in the IP
    /// header, and two count the length of the frame. For each frame that is not IP, nfacctd counts
    /// a packet without bytes.
    pub(super) fn expected(self, sums: &Sums) -> Written {
        let (packets, octets) = match self {
            Self::Nfacctd => (sums.frames, sums.ip_octets),
            Self::Nfcapd => (sums.ip_packets, sums.ip_octets),
            Self::Goflow2 | Self::Ipfix => (sums.frames, sums.octets),
        };
        Written { packets, octets }
    }

    fn command(self, dir: &Path) -> Result<Command> {
        let port = self.port().to_string();
        let mut command = match self {
            Self::Nfacctd => {
                let config = dir.join("nfacctd.conf");
                fs::write(&config, nfacctd_config(&port, dir))?;
                let mut command = Command::new("nfacctd");
                command.arg("-f").arg(config);
                command
            }
            Self::Nfcapd => {
                let flows = dir.join(FLOWS);
                fs::create_dir(&flows)?;
                let mut command = Command::new("nfcapd");
                command.args(["-b", "127.0.0.1", "-p", &port, "-w"]);
                command.arg(flows);
                command
            }
            Self::Goflow2 => {
                let mut command = Command::new(goflow2());
                command
                    .args(["-listen", &format!("netflow://127.0.0.1:{port}")])
                    .args(["-addr", GOFLOW2_METRICS])
                    .args(["-transport", "file", "-format", "json", "-transport.file"])
                    .arg(dir.join(ROWS));
                command
            }
            Self::Ipfix => {
                let mut command = Command::new("python3");
                command.env("PYTHONPATH", python()).arg("-c");
                command.arg(include_str!("ipfix_collector.py"));
                command.arg(port).arg(dir.join(COUNTS));
                command
            }
        };
        command.current_dir(dir);
        Ok(command)
    }

    /// The signal that ends the collector after it has written all data.
    fn signal(self) -> &'static str {
        match self {
            Self::Nfacctd | Self::Goflow2 => "INT",
            Self::Nfcapd | Self::Ipfix => "TERM",
        }
    }

    /// What the collector has written into its directory.
    fn written(self, dir: &Path) -> Result<Written> {
        match self {
            Self::Nfacctd | Self::Goflow2 => rows(&dir.join(ROWS)),
            Self::Nfcapd => flows(&dir.join(FLOWS)),
            Self::Ipfix => {
                let counts = counts(dir)?;
                let number = |name: &str| counts[name].as_u64().context("a count");
                Ok(Written {
                    packets: number("packets")?,
                    octets: number("octets")?,
                })
            }
        }
    }

    /// Words in the collector's log by which it reports that data was lost or could not be read.
    fn complaints(self) -> &'static [&'static str] {
        match self {
            Self::Nfacctd => &["expecting flow", "malformed", "ERROR"],
            Self::Nfcapd => &["ERROR", "error:"],
            Self::Goflow2 => &["level=ERROR", "level=WARN"],
            Self::Ipfix => &["Traceback"],
        }
    }
}

fn nfacctd_config(port: &str, dir: &Path) -> String {
    // At each full hour nfacctd writes its data, and then continues in the same file. If a
    // datagram's later fragment comes before its first fragment, and from another node, nfacctd
    // 1.7.7 counts the later fragment twice: at once, and with the first one.
    // `nfacctd_ext_sampling_rate` prevents this.
    format!(
        "daemonize: false\nnfacctd_ip: 127.0.0.1\nnfacctd_port: {port}\n\
         nfacctd_disable_checks: false\nnfacctd_ext_sampling_rate: 1\nplugins: print\nprint_refresh_time: 3600\n\
         print_output: json\nprint_output_file: {}\nprint_output_file_append: true\n\
         aggregate: src_host, dst_host, src_port, dst_port, proto\n",
        dir.join(ROWS).display()
    )
}

/// The names of the files in a collector's directory.
const ROWS: &str = "rows";
const FLOWS: &str = "flows";
const COUNTS: &str = "counts";

/// A running collector.
pub(super) struct Collector {
    pub(super) kind: Kind,
    dir: PathBuf,
    program: Program,
}

impl Collector {
    /// Starts a collector in its own directory, and waits until it listens.
    pub(super) fn start(kind: Kind, dir: PathBuf) -> Result<Self> {
        fs::create_dir_all(&dir)?;
        let mut program = Program::start(&mut kind.command(&dir)?, &dir, "collector")?;
        let table = if kind == Kind::Ipfix { "tcp" } else { "udp" };
        await_for("the collector to listen", LIMIT, || {
            program.ensure_runs()?;
            Ok(socket(table, kind.port())?.map(drop))
        })
        .with_context(|| format!("{kind:?}"))?;
        Ok(Self { kind, dir, program })
    }

    /// Waits until the queue of the collector's socket is empty, so the collector has read
    /// everything that was sent. If the collector writes while it runs, its file must also have the
    /// expected sums.
    pub(super) fn await_read(&self, expected: &Sums) -> Result<()> {
        let kind = self.kind;
        if kind != Kind::Ipfix {
            await_for("the collector to read", LIMIT, || {
                let (queued, lost) = socket("udp", kind.port())?.context("no socket any more")?;
                ensure!(lost == 0, "{kind:?}: its socket was full");
                Ok((queued == 0).then_some(()))
            })?;
        }
        if !matches!(kind, Kind::Goflow2 | Kind::Ipfix) {
            return Ok(());
        }
        let expected = kind.expected(expected);
        let mut last = Written::default();
        let wait = await_for("the collector to write", LIMIT, || {
            // The collector may be writing the last row, so reading the row may fail.
            last = kind.written(&self.dir).unwrap_or(last);
            Ok((last.packets >= expected.packets).then_some(()))
        });
        wait.with_context(|| format!("{kind:?}: {last:?} of {expected:?}"))
    }

    /// Stops the collector. Returns what the collector has written.
    pub(super) fn stop(self) -> Result<Written> {
        let kind = self.kind;
        let (log, out) = self.program.stop(kind.signal())?;
        let said = log + &out;
        for complaint in kind.complaints() {
            ensure!(!said.contains(complaint), "{kind:?}: {said}");
        }
        if kind == Kind::Nfcapd {
            let lines = || said.lines().filter(|line| line.contains("Flows: "));
            let is_whole = |line: &str| line.ends_with("Sequence Errors: 0, Bad Packets: 0");
            ensure!(lines().count() > 0 && lines().all(is_whole), "{said}");
        }
        kind.written(&self.dir)
            .with_context(|| format!("{kind:?}: {said}"))
    }

    /// How many options records the collector has read; `None` if it does not count them.
    pub(super) fn options(&self) -> Result<Option<u64>> {
        match self.kind {
            Kind::Nfacctd | Kind::Nfcapd => Ok(None),
            Kind::Goflow2 => goflow2_options().map(Some),
            Kind::Ipfix => Ok(counts(&self.dir)?["selectors"].as_u64()),
        }
    }

    /// The file with the counts of the Python collector.
    pub(super) fn counts_file(&self) -> PathBuf {
        self.dir.join(COUNTS)
    }
}

/// The counts of the Python collector.
pub(super) fn counts(dir: &Path) -> Result<Value> {
    read_json(&dir.join(COUNTS))
}

pub(super) fn read_json(path: &Path) -> Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

/// The sums over a file's rows of JSON.
fn rows(file: &Path) -> Result<Written> {
    let mut written = Written::default();
    for line in fs::read_to_string(file)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        let number = |name: &str| row[name].as_u64().with_context(|| line.to_owned());
        written.packets += number("packets")?;
        written.octets += number("bytes")?;
    }
    Ok(written)
}

/// The sums of the flows that nfdump reads from nfcapd's files.
fn flows(dir: &Path) -> Result<Written> {
    let mut nfdump = Command::new("nfdump");
    nfdump
        .arg("-R")
        .arg(dir)
        .args(["-q", "-N", "-o", "fmt:%pkt %byt"]);
    let done = nfdump.output()?;
    let text = String::from_utf8(done.stdout)?;
    ensure!(done.status.success(), "{nfdump:?}: {text}");
    let mut written = Written::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next().context("a number")?.context("a number");
        let (packets, octets) = next()
            .and_then(|packets| Ok((packets, next()?)))
            .with_context(|| line.to_owned())?;
        ensure!(packets == 1, "expected one packet in each flow: {line}");
        written.packets += packets;
        written.octets += octets;
    }
    Ok(written)
}

/// The number of options records in `GoFlow2`'s metrics.
fn goflow2_options() -> Result<u64> {
    let mut stream = TcpStream::connect(GOFLOW2_METRICS)?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let lines = text.lines().filter(|line| {
        line.starts_with("goflow2_flow_process_nf_flowset_records_total{")
            && line.contains("\"OptionsDataFlowSet\"")
    });
    let numbers = lines.filter_map(|line| line.rsplit(' ').next());
    numbers.map(|it| Ok(it.parse::<u64>()?)).sum()
}

/// For the socket on this port, the bytes in its queue and the number of datagrams that it lost.
fn socket(table: &str, port: u16) -> Result<Option<(u64, u64)>> {
    let text = fs::read_to_string(format!("/proc/thread-self/net/{table}"))?;
    let mut rows = text
        .lines()
        .map(|row| row.split_whitespace().collect::<Vec<_>>());
    let address = format!("0100007F:{port:04X}");
    let Some(row) = rows.find(|row| row.get(1) == Some(&&*address)) else {
        return Ok(None);
    };
    let (_, queued) = row[4].split_once(':').context("tx_queue:rx_queue")?;
    let lost = row.last().context("drops")?.parse().unwrap_or(0);
    Ok(Some((u64::from_str_radix(queued, 16)?, lost)))
}

/// The directory for programs from registries, below the build directory.
fn installed() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("collectors")
}

fn goflow2() -> PathBuf {
    installed().join("goflow2")
}

fn python() -> PathBuf {
    installed().join("python")
}

/// Runs a command to its end. The error contains the last line that the command printed.
fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_owned();
    let done = command.output();
    let done = done.with_context(|| format!("no {}", program.to_string_lossy()))?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "{}",
        said.lines().last().unwrap_or_default()
    );
    Ok(())
}
