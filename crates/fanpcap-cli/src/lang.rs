//! `fanpcap lang`: checks, explains and tries steering programs before they run.

mod source;
mod check;
mod given;
mod unknown;
mod try_out;
mod written;
mod explain;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Checks, explains and tries steering programs, fanpcap-lang(7)
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Check(check::Arguments),
    Explain(explain::Arguments),
    Try(try_out::Arguments),
}

/// Runs `fanpcap lang`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.verb {
        Verb::Check(arguments) => check::run(arguments),
        Verb::Explain(arguments) => explain::run(arguments),
        Verb::Try(arguments) => try_out::run(arguments),
    }
}
