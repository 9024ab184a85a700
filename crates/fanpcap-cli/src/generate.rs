//! `fanpcap gen`: makes traffic.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// Sends traffic: made from a description, or replayed
#[derive(Args, Debug)]
pub(crate) struct Arguments {}

/// Does it.
pub(crate) fn run(_arguments: &Arguments) -> Result<ExitCode> {
    bail!("not built yet")
}
