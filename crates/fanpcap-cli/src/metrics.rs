//! `fanpcap metrics`: the counters of groups and members for Prometheus.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// Prints the counters of groups and members as Prometheus wants them
#[derive(Args, Debug)]
pub(crate) struct Arguments {}

/// Does it.
pub(crate) fn run(_arguments: &Arguments) -> Result<ExitCode> {
    bail!("not built yet")
}
