//! The `fanpcap` command, one file per subcommand, and the code that `fanpcap-bench` shares with
//! it.
#![forbid(unsafe_code)]

mod cpus;
mod flow;
mod generate;
pub mod library;
pub mod build;
mod bench;
mod snapshot;
mod offered;
pub mod streams;
mod capture;
pub mod complete;
mod lang;
mod default_mode;
mod config;
mod metrics;
mod run;
mod system;
mod top;
mod group;
mod doctor;
mod verify;
mod tune;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

/// Packet capture that fans out: programs written for libpcap share one stream of packets.
#[derive(Debug, Parser)]
#[command(name = "fanpcap", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Arguments),
    Top(top::Arguments),
    Group(group::Arguments),
    Tune(tune::Arguments),
    Config(config::Arguments),
    Doctor(doctor::Arguments),
    Verify(verify::Arguments),
    Metrics(metrics::Arguments),
    Capture(capture::Arguments),
    Gen(generate::Arguments),
    Bench(bench::Arguments),
    Lang(lang::Arguments),
    Enable(system::Enable),
    Disable(system::Disable),
    #[command(hide = true)]
    Complete(complete::Arguments),
}

/// Parses the command line and runs the subcommand.
pub fn main() -> ExitCode {
    streams::ended(run(env::args_os().collect()))
}

/// The command line, for the manual pages.
pub fn command() -> clap::Command {
    Arguments::command()
}

fn run(words: Vec<OsString>) -> Result<ExitCode> {
    if let [_, help, of, more @ ..] = words.as_slice() {
        // fanpcap-bench has its own options.
        if help == "help" && of == "bench" {
            return bench::help(more);
        }
    }
    match Arguments::parse_from(words).command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Group(arguments) => group::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Metrics(arguments) => metrics::run(&arguments),
        Command::Capture(arguments) => capture::run(&arguments),
        Command::Gen(arguments) => generate::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Lang(arguments) => lang::run(&arguments),
        Command::Enable(arguments) => system::enable(&arguments),
        Command::Disable(arguments) => system::disable(&arguments),
        Command::Complete(arguments) => complete::run(&arguments),
    }
}
