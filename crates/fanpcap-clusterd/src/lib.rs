//! The program `fanpcap-cluster`, which `fanpcap node`, `coordinator`, `analyzer`, `cluster` run.
//!
//! This crate handles sockets, clocks and files. The crate `fanpcap-cluster` makes the decisions,
//! and does no I/O.
#![forbid(unsafe_code)]

mod textfile;
pub mod tls;
pub mod keyring;
mod dicap;
pub mod shipping;
pub mod conf;
pub mod credentials;
pub mod coordination;
pub mod fixed;
pub mod embedded;
pub mod etcd;
pub mod engine;
mod pcapng;
mod frames;
mod pins;
mod vlan_tags;
pub mod selector;
mod node;
mod cluster;
mod coordinator;
mod analyzer;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use fanpcap_external::BUILD;
use fanpcap_terminal::{complete, parse, streams};

/// A capture cluster: several machines behind a mirror port share the port's packets.
#[derive(Debug, Parser)]
#[command(
    name = "fanpcap-cluster",
    bin_name = "fanpcap",
    version,
    max_term_width = 100
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Node(node::Arguments),
    Coordinator(coordinator::Arguments),
    Analyzer(analyzer::Arguments),
    Cluster(cluster::Arguments),
    #[command(hide = true)]
    Complete(complete::Arguments),
    /// Prints this program's build, for the command `fanpcap`
    #[command(hide = true)]
    Build,
}

/// Parses the command line and runs the subcommand.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    streams::ended(run(&parse(command(), &words)))
}

/// The command line, for the manual pages.
pub fn command() -> clap::Command {
    Arguments::command()
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Node(arguments) => node::run(arguments),
        Command::Coordinator(arguments) => coordinator::run(arguments),
        Command::Analyzer(arguments) => analyzer::run(arguments),
        Command::Cluster(arguments) => cluster::run(arguments),
        Command::Complete(words) => {
            complete::print(command(), &words.words, &[])?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Build => {
            streams::print(&format!("{BUILD}\n"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
