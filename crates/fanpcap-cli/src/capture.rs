//! `fanpcap capture`: counts packets in several threads of one group.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// Captures and counts packets, in several threads that share them
#[derive(Args, Debug)]
pub(crate) struct Arguments {}

/// Does it.
pub(crate) fn run(_arguments: &Arguments) -> Result<ExitCode> {
    bail!("not built yet")
}
