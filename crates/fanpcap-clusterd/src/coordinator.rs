//! `fanpcap coordinator`: decides who captures what.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// Decides which node captures which packets, or stands by
#[derive(Args, Debug)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> Result<ExitCode> {
    bail!("this build has no coordinator");
}
