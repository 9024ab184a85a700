//! `fanpcap manual`: writes the command's manual pages and completions.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// Writes manual pages and completions into a directory
#[derive(Args, Debug)]
pub(crate) struct Arguments {}

/// Does it.
pub(crate) fn run(_arguments: &Arguments) -> Result<ExitCode> {
    bail!("not built yet")
}
