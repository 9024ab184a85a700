//! `fanpcap coordinator`: decides which node captures which packets.

mod beacons;
mod metrics;
mod lead;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use fanpcap_cluster::DesiredState;
use fanpcap_cluster::coordinator::{Coordinator, Timing};
use fanpcap_linux::wait::stop;
use fanpcap_select::Selection;
use fanpcap_terminal::notify::Notify;
use fanpcap_terminal::streams;

use crate::conf::{Conf, Engine, PATH, Role};
use crate::credentials::{self, Reloader};
use crate::engine;
use crate::frames;
use crate::keyring::random;
use crate::textfile;
use beacons::Beacons;
use lead::Driver;
use metrics::Metrics;

/// Decides which node captures which packets
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The settings of the cluster
    #[arg(long, value_name = "FILE", default_value = PATH)]
    config: PathBuf,
    /// Writes metrics for Prometheus to a file every second: for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let conf = Conf::load(&arguments.config)?;
    conf.check_files(Role::Coordinator)?;
    textfile::check("--metrics", arguments.metrics.as_deref())?;
    stop::on_signals().context("catching signals")?;
    let keyring = credentials::keyring(&conf, Role::Coordinator)?;
    let mut reloader = Reloader::new(&arguments.config, Role::Coordinator, keyring, say)?;
    let desired = DesiredState {
        selection: selection(&conf).context("drawing the hash's initial value")?,
        analyzers: conf.analyzers.clone(),
        filter: conf.filter()?,
        ..DesiredState::default()
    };
    let side = engine::coordinator_side(&conf, &name(), desired)?;
    let notify = Notify::from_environment();
    say(&format!("cluster {}", conf.cluster));
    notify.ready();
    let metrics = arguments.metrics.clone();
    let metrics = metrics.map(|file| Metrics::new(file, &conf.cluster));
    let mut driver = Driver::new(side, Coordinator::new(timing(&conf)), metrics, say);
    if let Some(device) = &conf.beacon {
        let numbers = frames::numbers(&conf)?.into_iter().next();
        let numbers = numbers.context("'beacon' without 'key_file'")?;
        driver.send(Beacons::new(device, frames::cluster(&conf), numbers));
    }
    let begun = Instant::now();
    while !stop::is_requested() {
        if let Some(conf) = reloader.due() {
            driver.reload(&conf);
        }
        driver.step(|| begun.elapsed())?;
        notify.alive();
        notify.status(&driver.status);
    }
    notify.stopping();
    driver.resign();
    Ok(ExitCode::SUCCESS)
}

/// The coordinator's name, which consists of the machine's name and the process id.
fn name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.unwrap_or_default();
    format!("{}/{}", host.trim(), std::process::id())
}

fn timing(conf: &Conf) -> Timing {
    let lease = match &conf.engine {
        Engine::Embedded(embedded) => embedded.offline,
        Engine::Etcd(etcd) => etcd.lease,
        Engine::Fixed(_) => Duration::ZERO,
    };
    Timing {
        lease,
        dwell: conf.dwell,
        hold_down: conf.hold_down,
        ..Timing::default()
    }
}

/// The selection for a new cluster. Its initial value is random, and can't be guessed. A cluster
/// that already has a topology keeps the initial value in this topology.
fn selection(conf: &Conf) -> Result<Selection> {
    Ok(Selection {
        initial: u32::from_ne_bytes(random()?),
        ..conf.selection
    })
}

/// Prints one line on standard error, which systemd writes to its journal.
fn say(line: &str) {
    streams::note(&format!("fanpcap coordinator: {line}\n"));
}
