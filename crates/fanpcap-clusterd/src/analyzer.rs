//! `fanpcap analyzer`: takes the nodes' records and accounts for every packet.

mod clock;
mod extra_counter;
mod files;
mod channel;
mod exports;
mod outputs;
mod connection_limits;
mod refusal;
mod intake;
mod pending_acks;
mod clock_offset;
mod missing_packets;
mod node_reports;
mod status;
mod by_bucket;
mod metrics;
mod screen;
mod topology_follower;
mod analyzer_loop;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use fanpcap_cluster::Part;
use fanpcap_cluster::analyzer::AnalyzerSettings;
use fanpcap_cluster::control::ClusterId;
use fanpcap_linux::wait::clock::realtime_ns;
use fanpcap_linux::wait::stop;
use fanpcap_terminal::notify::Notify;
use fanpcap_terminal::{at_least_one, streams};

use crate::conf::{Conf, Mode, PATH, Role};
use crate::credentials::{self, Reloader};
use crate::keyring::Keyring;
use crate::shipping::RecordTransport;
use crate::textfile;
use analyzer_loop::{AnalyzerLoop, AnalyzerLoopSettings};
use clock::{Clock, ClockJumps};
use exports::{Exports, Target};
use files::{Retention, Rotation};
use metrics::Metrics;
use screen::TerminalScreen;
use status::Status;
use topology_follower::TopologyFollower;

/// Collects the nodes' records and accounts for every packet
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The settings of the cluster
    #[arg(long, value_name = "FILE", default_value = PATH)]
    config: PathBuf,
    /// Where to listen: one of the analyzers' addresses in the settings
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Writes the packets to pcapng files in this directory, which no other analyzer may use
    #[arg(short, long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// Begins another file after this many MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = at_least_one::<u64>)]
    rotate_size: u64,
    /// Begins another file after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = at_least_one::<u64>)]
    rotate_time: u64,
    /// Keeps at most this many files, and removes the oldest. The default is 168, or no limit if
    /// another limit is given
    #[arg(long, value_name = "FILES", value_parser = at_least_one::<usize>)]
    keep: Option<usize>,
    /// Keeps at most this many MiB of files, and removes the oldest files
    #[arg(long, value_name = "MIB", requires = "write", value_parser = at_least_one::<u64>)]
    keep_size: Option<u64>,
    /// Keeps this many MiB of the file system free: removes the oldest files when less is free
    #[arg(long, value_name = "MIB", requires = "write", value_parser = at_least_one::<u64>)]
    keep_free: Option<u64>,
    /// Compresses finished files by zstd, when no other work needs the CPU
    #[arg(long, requires = "write")]
    compress: bool,
    /// Milliseconds by which clocks of nodes may differ
    #[arg(long, value_name = "MS", default_value_t = 250)]
    skew: u64,
    /// Maximum size, in MiB, of the records that wait to be sorted
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = at_least_one::<usize>)]
    memory: usize,
    /// Also exports the packets as IPFIX, to ipfix://HOST:PORT (UDP); other schemes are ipfix+tcp,
    /// ipfix-flows and ipfix-flows+tcp. May be given several times
    #[arg(long, value_name = "URL")]
    export: Vec<String>,
    /// Writes metrics to this file, once a second
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Writes the account of each bucket to this file, as CSV, once a second
    #[arg(long, value_name = "FILE")]
    buckets: Option<PathBuf>,
    /// Prints its state as a line of JSON, once a second
    #[arg(long)]
    json: bool,
    /// Shows its state on the terminal, once a second
    #[arg(long, conflicts_with = "json")]
    watch: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let conf = Conf::load(&arguments.config)?;
    conf.check_files(Role::Analyzer)?;
    textfile::check("--metrics", arguments.metrics.as_deref())?;
    textfile::check("--buckets", arguments.buckets.as_deref())?;
    let rotation = rotation(arguments)?;
    let listen = arguments.listen.or_else(|| conf.analyzers.first().copied());
    let listen =
        listen.context("no address to listen on: set --listen, or 'analyzers' in the settings")?;
    let part = Part::of(listen, &conf.analyzers).with_context(|| {
        format!("{listen} is not in 'analyzers' in the settings: set --listen to an address there")
    })?;
    stop::on_signals().context("catching signals")?;
    let keyring = credentials::keyring(&conf, Role::Analyzer)?;
    let mut reloader = Reloader::new(&arguments.config, Role::Analyzer, Arc::clone(&keyring), say)?;
    if keyring.tls().is_none() {
        say(credentials::OPEN);
    }
    let targets = arguments.export.iter().map(|text| Target::read(text));
    let targets: Vec<Target> = targets.collect::<Result<_>>()?;
    let clock = Clock::start();
    let settings = loop_settings(
        arguments,
        &conf,
        rotation,
        (listen, part),
        (&keyring, clock),
    );
    let mut analyzer_loop = AnalyzerLoop::open(&settings)?;
    if !targets.is_empty() {
        analyzer_loop.export(Exports::start(targets)?);
    }
    let files = [arguments.metrics.clone(), arguments.buckets.clone()];
    let mut metrics = Metrics::new(files, &conf.cluster);
    let cluster = conf.cluster.clone();
    let mut topology_follower = TopologyFollower::start(conf, clock);
    let mut jumps = ClockJumps::new(clock);
    let screen = arguments.watch.then(TerminalScreen::open).transpose()?;
    let notify = Notify::from_environment();
    say(&on(arguments, listen, &cluster));
    notify.ready();
    while !stop::is_requested() {
        if let Some(conf) = reloader.due() {
            topology_follower.reload(conf);
        }
        topology_follower
            .updates
            .try_iter()
            .for_each(|update| analyzer_loop.follow(update));
        if let Some(revision) = analyzer_loop.unheard() {
            topology_follower.look_for(revision);
        }
        if let Some(status) = analyzer_loop.work() {
            jumps
                .due(realtime_ns())
                .into_iter()
                .for_each(|line| say(&line));
            notify.status(status.line().trim_end());
            metrics.write(&status);
            show(&status, arguments.json, screen.as_ref())?;
        }
        notify.alive();
    }
    notify.stopping();
    drop(screen);
    let status = analyzer_loop.close();
    thread::sleep(FAREWELL);
    metrics.write(&status);
    show(&status, arguments.json, None)?;
    Ok(ExitCode::SUCCESS)
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse();
    address.map_err(|_| "write an address and a port: 10.0.0.1:7701, [2001:db8::1]:7701".to_owned())
}

/// Where the analyzer listens, and where it writes its files.
fn on(arguments: &Arguments, listen: SocketAddr, cluster: &str) -> String {
    let files = arguments.write.as_ref();
    let files = files.map_or_else(String::new, |it| format!(", writes to {}", it.display()));
    format!("cluster {cluster}, listens on {listen}{files}")
}

/// When another file begins, and which files are kept.
fn rotation(arguments: &Arguments) -> Result<Rotation> {
    let Arguments {
        rotate_size,
        keep,
        keep_size,
        keep_free,
        ..
    } = arguments;
    if let Some(keep_size) = keep_size.filter(|it| it < rotate_size) {
        bail!(
            "--keep-size {keep_size} is less than --rotate-size {rotate_size}: the file that is \
             being written is never removed; write a smaller --rotate-size"
        );
    }
    let bytes = |mib: u64| mib.saturating_mul(1 << 20);
    let has_limit = keep_size.is_some() || keep_free.is_some();
    Ok(Rotation {
        bytes: bytes(*rotate_size),
        time: arguments.rotate_time.saturating_mul(1_000_000_000),
        keep: Retention {
            files: keep.or((!has_limit).then_some(FILES)),
            bytes: keep_size.map(bytes),
            free: keep_free.map(bytes),
        },
        compress: arguments.compress,
    })
}

/// How many files are kept if no limit is given.
const FILES: usize = 168;

fn loop_settings<'a>(
    arguments: &'a Arguments,
    conf: &Conf,
    rotation: Rotation,
    (listen, part): (SocketAddr, Part),
    (keyring, clock): (&'a Arc<Keyring>, Clock),
) -> AnalyzerLoopSettings<'a> {
    let skew = arguments.skew.saturating_mul(1_000_000);
    AnalyzerLoopSettings {
        listen,
        part,
        keyring,
        clock,
        directory: arguments.write.as_deref(),
        rotation,
        analyzer: AnalyzerSettings {
            cluster: ClusterId::of_name(&conf.cluster).0,
            hold: skew.saturating_mul(4),
            skew,
            most_held: arguments.memory.saturating_mul(1 << 20),
            seed: seed(clock.now()),
            begin: clock.now(),
        },
        // DiCAP's datagrams are not merged, because they do not say which node captured a packet.
        analyzed: conf.mode == Mode::Capture
            && !matches!(conf.transport, RecordTransport::Dicap(_)),
        offline: OFFLINE,
        dicap_port: match conf.transport {
            RecordTransport::Dicap(port) => port,
            RecordTransport::Tcp => None,
        },
    }
}

/// Before the analyzer ends, the connections have this long to send the last acknowledgements.
const FAREWELL: Duration = Duration::from_millis(50);

/// A node that reported nothing for this many nanoseconds is dead.
const OFFLINE: u64 = 15_000_000_000;

/// Prints one line on standard error, which systemd writes to its journal.
fn say(line: &str) {
    streams::note(&format!("fanpcap analyzer: {line}\n"));
}

fn show(status: &Status, json: bool, screen: Option<&TerminalScreen>) -> Result<()> {
    if let Some(screen) = screen {
        return screen.draw(status);
    }
    let text = if json { status.json() } else { status.line() };
    streams::print(&text)?;
    Ok(())
}

/// An unguessable number.
fn seed(now: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(now)
}

#[cfg(test)]
mod tests;
