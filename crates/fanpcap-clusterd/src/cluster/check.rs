//! `fanpcap cluster check`: says what is wrong with a cluster.conf.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// Says what is wrong with a cluster.conf
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The file
    #[arg(default_value = "/etc/fanpcap/cluster.conf")]
    file: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    bail!("{} is not checked by this build", arguments.file.display());
}
