//! The `fanpcap` command: one file per subcommand.
#![forbid(unsafe_code)]

mod cpus;
mod generate;
mod library;
mod bench;
mod snapshot;
mod streams;
mod capture;
mod complete;
mod lang;
mod config;
mod manual;
mod metrics;
mod run;
mod system;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    Config(config::Arguments),
    Metrics(metrics::Arguments),
    Capture(capture::Arguments),
    Gen(generate::Arguments),
    Bench(bench::Arguments),
    Lang(lang::Arguments),
    Enable(system::Enable),
    Disable(system::Disable),
    #[command(hide = true)]
    Complete(complete::Arguments),
    #[command(hide = true)]
    Manual(manual::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Metrics(arguments) => metrics::run(&arguments),
        Command::Capture(arguments) => capture::run(&arguments),
        Command::Gen(arguments) => generate::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Lang(arguments) => lang::run(&arguments),
        Command::Enable(arguments) => system::enable(&arguments),
        Command::Disable(arguments) => system::disable(&arguments),
        Command::Complete(arguments) => complete::run(&arguments),
        Command::Manual(arguments) => manual::run(&arguments),
    };
    done.unwrap_or_else(|error| {
        streams::note(&format!("fanpcap: {}\n", streams::words(&error)));
        ExitCode::FAILURE
    })
}
