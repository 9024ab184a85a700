//! `fanpcap run`: copies of a program share one stream of packets.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// Runs copies of a program that share one stream of packets
#[derive(Args, Debug)]
pub(crate) struct Arguments {}

/// Does it.
pub(crate) fn run(_arguments: &Arguments) -> Result<ExitCode> {
    bail!("not built yet")
}
