//! `fanpcap analyzer`: takes the nodes' records and accounts for every packet.

mod pcapng;
mod files;
mod channel;
mod intake;
mod paper;
mod books;
mod status;
mod metrics;
mod exports;
mod desk;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use fanpcap_cli::streams;
use fanpcap_cluster::analyzer::AnalyzerSettings;
use fanpcap_cluster::control::ClusterId;
use fanpcap_cluster::{Announcement, NodeEvent, NodeId};
use fanpcap_linux::wait::stop;

use crate::conf::{Conf, Mode, PATH};
use crate::credentials::{self, Reloader};
use crate::engine;
use crate::notify::Notify;
use crate::shipping::Way;
use desk::{Desk, DeskSettings, now};
use exports::{Exports, Target};
use files::Rotation;
use metrics::Metrics;
use status::Status;

/// Collects the nodes' records and accounts for every packet
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The settings of the cluster
    #[arg(long, value_name = "FILE", default_value = PATH)]
    config: PathBuf,
    /// Where to listen, by UDP and TCP: one of the analyzers' addresses in the settings
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Writes the packets to pcapng files in this directory
    #[arg(short, long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// Begins another file after so many MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    rotate_size: u64,
    /// Begins another file after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    rotate_time: u64,
    /// Keeps so many files and removes the oldest
    #[arg(long, value_name = "FILES", default_value_t = 168)]
    keep: usize,
    /// Milliseconds by which clocks of nodes may differ
    #[arg(long, value_name = "MS", default_value_t = 250)]
    skew: u64,
    /// Most MiB of records that wait to be put in order
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: usize,
    /// Also exports the packets as IPFIX, to ipfix://HOST:PORT (UDP); other schemes are ipfix+tcp,
    /// ipfix-flows and ipfix-flows+tcp. May stand several times
    #[arg(long, value_name = "URL")]
    export: Vec<String>,
    /// Writes metrics to this file, once a second
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Tells its state as a line of JSON a second
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let conf = Conf::load(&arguments.config)?;
    conf.check_files()?;
    let listen = arguments.listen.or_else(|| conf.analyzers.first().copied());
    let listen =
        listen.context("no address: name it with --listen, or 'analyzers' in the settings")?;
    stop::on_signals().context("catching signals")?;
    let keyring = credentials::keyring(&conf)?;
    let mut reloader = Reloader::new(&arguments.config, Arc::clone(&keyring), say)?;
    if !keyring.has_keys() {
        say(credentials::OPEN);
    }
    let targets = arguments.export.iter().map(|text| Target::read(text));
    let targets: Vec<Target> = targets.collect::<Result<_>>()?;
    let skew = arguments.skew.saturating_mul(1_000_000);
    let mut desk = Desk::open(&DeskSettings {
        listen,
        keyring: &keyring,
        directory: arguments.write.as_deref(),
        rotation: Rotation {
            bytes: arguments.rotate_size.saturating_mul(1 << 20),
            time: arguments.rotate_time.saturating_mul(1_000_000_000),
            keep: arguments.keep,
        },
        analyzer: AnalyzerSettings {
            cluster: ClusterId::of_name(&conf.cluster).0,
            hold: skew.saturating_mul(4),
            skew,
            most_held: arguments.memory.saturating_mul(1 << 20),
            seed: seed(),
        },
        // Of the paper's datagrams nobody knows whose packets are in them.
        analyzed: conf.mode == Mode::Capture && !matches!(conf.transport, Way::Paper(_)),
        offline: OFFLINE,
        dicap_port: match conf.transport {
            Way::Paper(port) => port,
            Way::Udp(_) | Way::Tcp => None,
        },
    })?;
    let mut metrics = Metrics::new(arguments.metrics.clone(), &conf.cluster);
    if !targets.is_empty() {
        desk.export(Exports::start(targets)?);
    }
    let (news, engine) = watch(conf);
    let notify = Notify::from_environment();
    notify.ready();
    while !stop::is_requested() {
        if let Some(conf) = reloader.due() {
            // Without an engine there is nobody to tell.
            let _ = engine.send(conf);
        }
        news.try_iter().for_each(|event| desk.follow(event));
        if let Some(status) = desk.work() {
            notify.status(status.line().trim_end());
            metrics.write(&status);
            print(&status, arguments.json)?;
        }
        notify.alive();
    }
    notify.stopping();
    let status = desk.close();
    metrics.write(&status);
    print(&status, arguments.json)?;
    Ok(ExitCode::SUCCESS)
}

/// A node that reported nothing for so long, in nanoseconds, is dead.
const OFFLINE: u64 = 15_000_000_000;

/// Follows the topology in a thread of its own. An analyzer that can't do so goes on without: it
/// removes doubles by the nodes' marks and fences nobody. Settings that are sent there replace the
/// engine's keys.
fn watch(conf: Conf) -> (Receiver<NodeEvent>, Sender<Conf>) {
    let (to, news) = channel();
    let (reload, settings) = channel();
    let follow = move || -> Result<()> {
        let nobody = Announcement {
            node: NodeId(0),
            boot: 0,
            weight: 0,
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        };
        let mut engine = engine::node_side(&conf, &nobody)?;
        loop {
            for conf in settings.try_iter() {
                engine.reload(&conf)?;
            }
            for event in engine.poll(Duration::from_millis(200))? {
                to.send(event)?;
            }
        }
    };
    let said = move || {
        if let Err(error) = follow() {
            let why = streams::words(&error);
            say(&format!("follows no topology: {why}"));
        }
    };
    if thread::Builder::new()
        .name("topology".to_owned())
        .spawn(said)
        .is_err()
    {
        say("follows no topology: no thread for it");
    }
    (news, reload)
}

/// One line on standard error, where systemd's journal has it.
fn say(line: &str) {
    streams::note(&format!("fanpcap analyzer: {line}\n"));
}

fn print(status: &Status, json: bool) -> Result<()> {
    let text = if json { status.json() } else { status.line() };
    streams::print(&text)?;
    Ok(())
}

/// A number that nobody outside can guess.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(now())
}

#[cfg(test)]
mod tests;
