//! `fanpcap node`: follows the topology and selects on the monitored device.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use crate::conf::{Conf, PATH};

/// Captures this machine's part of a mirrored link, in a capture cluster (as root)
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The settings of the cluster
    #[arg(long, value_name = "FILE", default_value = PATH)]
    config: PathBuf,
    /// The device that receives the mirrored packets, in the place of the settings' own
    #[arg(short, long, value_name = "DEV")]
    interface: Option<String>,
    /// Also on the device of the default route, or on one with an address: the machine may be cut
    /// off
    #[arg(long)]
    force: bool,
    /// Takes the selection off the device and ends; other nodes' packets are no longer dropped
    #[arg(long)]
    detach: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let conf = Conf::load(&arguments.config)?;
    let Arguments {
        interface,
        force,
        detach,
        ..
    } = arguments;
    let device = interface.as_ref().or(conf.device.as_ref());
    bail!("this build has no node on {device:?} ({force}, {detach})");
}
