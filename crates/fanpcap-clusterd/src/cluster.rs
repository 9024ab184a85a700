//! `fanpcap cluster`: shows a cluster, and changes it for the operator.

mod selected;
mod doctor;
mod check;
mod waiting;
pub(crate) mod status;
mod topology;
mod change;
mod merge;
#[cfg(feature = "parquet")]
mod parquet;

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
    Status(status::Arguments),
    Drain(change::Drain),
    Weight(change::Weight),
    Topology(topology::Arguments),
    Merge(merge::Arguments),
    #[cfg(feature = "parquet")]
    Parquet(parquet::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Check(arguments) => check::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Drain(arguments) => change::drain(arguments),
        Command::Weight(arguments) => change::weight(arguments),
        Command::Topology(arguments) => topology::run(arguments),
        Command::Merge(arguments) => merge::run(arguments),
        #[cfg(feature = "parquet")]
        Command::Parquet(arguments) => parquet::run(arguments),
    }
}
