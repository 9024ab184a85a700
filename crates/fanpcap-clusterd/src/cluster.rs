//! `fanpcap cluster`: looks at a cluster and tells it what the operator wants.

mod check;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Shows a capture cluster and changes it
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Check(check::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Check(arguments) => check::run(arguments),
    }
}
