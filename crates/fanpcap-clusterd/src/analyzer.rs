//! `fanpcap analyzer`: takes the nodes' records.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// Collects the nodes' records and accounts for every packet
#[derive(Args, Debug)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> Result<ExitCode> {
    bail!("this build has no analyzer");
}
