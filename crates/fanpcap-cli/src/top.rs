//! `fanpcap top`: who captures what, as it changes.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// Shows groups and their members: rates, shares, drops
#[derive(Args, Debug)]
pub(crate) struct Arguments {}

/// Does it.
pub(crate) fn run(_arguments: &Arguments) -> Result<ExitCode> {
    bail!("not built yet")
}
