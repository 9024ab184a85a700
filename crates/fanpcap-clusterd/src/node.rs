//! `fanpcap node`: follows the topology and selects on the monitored device.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// Captures this node's part of a mirrored link
#[derive(Args, Debug)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> Result<ExitCode> {
    bail!("this build has no node");
}
