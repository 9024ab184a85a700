//! The `fanpcap` command, one file per subcommand.
#![forbid(unsafe_code)]

mod generate;
mod poller;
mod complete;
mod lang;
mod config;
mod metrics;
mod top;
mod group;
mod help;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};
use fanpcap_doctor::{doctor, tune, verify};
use fanpcap_external::ExternalCommand;
use fanpcap_install::system;
use fanpcap_terminal::{parse, streams};

/// Packet capture with fan-out: libpcap's programs share one stream of packets.
#[derive(Debug, Parser)]
#[command(name = "fanpcap", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(fanpcap_run::Arguments),
    Serve(fanpcap_run::serve::Arguments),
    Poller(poller::Arguments),
    Top(top::Arguments),
    Group(group::Arguments),
    Tune(tune::Arguments),
    Config(config::Arguments),
    Doctor(doctor::Arguments),
    Verify(verify::Arguments),
    Metrics(metrics::Arguments),
    Capture(fanpcap_capture::Arguments),
    Gen(generate::Arguments),
    /// Measures this library against its peers (as root)
    Bench(fanpcap_external::Arguments),
    /// Captures this machine's part of a mirrored link (as root)
    Node(fanpcap_external::Arguments),
    /// Decides which node captures which packets
    Coordinator(fanpcap_external::Arguments),
    /// Collects the nodes' records and accounts for every packet
    Analyzer(fanpcap_external::Arguments),
    /// Shows a capture cluster and changes it
    Cluster(fanpcap_external::Arguments),
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

/// The command line.
pub fn command() -> clap::Command {
    help::in_groups(Arguments::command())
}

/// Runs a subcommand that is a separate program.
fn external(verb: &str, arguments: &fanpcap_external::Arguments) -> Result<ExitCode> {
    let external = ExternalCommand::of(verb).context("a program of its own")?;
    external.run(arguments)
}

fn run(words: Vec<OsString>) -> Result<ExitCode> {
    if let [_, help, of, more @ ..] = words.as_slice() {
        // A separate program has its own options.
        let external = ExternalCommand::of(of).filter(|_| help == "help");
        if let Some(external) = external {
            return external.help(more);
        }
    }
    match parse::<Arguments>(command(), &words).command {
        Command::Run(arguments) => fanpcap_run::run(&arguments),
        Command::Serve(arguments) => fanpcap_run::serve::serve(&arguments),
        Command::Poller(arguments) => poller::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Group(arguments) => group::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Metrics(arguments) => metrics::run(&arguments),
        Command::Capture(arguments) => fanpcap_capture::run(&arguments),
        Command::Gen(arguments) => generate::run(&arguments),
        Command::Bench(arguments) => external("bench", &arguments),
        Command::Node(arguments) => external("node", &arguments),
        Command::Coordinator(arguments) => external("coordinator", &arguments),
        Command::Analyzer(arguments) => external("analyzer", &arguments),
        Command::Cluster(arguments) => external("cluster", &arguments),
        Command::Lang(arguments) => lang::run(&arguments),
        Command::Enable(arguments) => system::enable(&arguments),
        Command::Disable(arguments) => system::disable(&arguments),
        Command::Complete(arguments) => complete::run(&arguments),
    }
}
