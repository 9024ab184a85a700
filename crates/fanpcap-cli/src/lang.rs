//! `fanpcap lang`: what a steering program is worth before it runs.

mod check;
mod pcap;
mod source;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Looks at steering programs, fanpcap-lang(7)
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Check(check::Arguments),
}

/// Does it.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.verb {
        Verb::Check(arguments) => check::run(arguments),
    }
}
