//! The program `fanpcap-cluster`, which `fanpcap node`, `coordinator`, `analyzer` and `cluster`
//! run.
//!
//! Decisions are made by `fanpcap-cluster`, which does no I/O. The code here has the sockets, the
//! clocks and the files.
#![forbid(unsafe_code)]

pub mod conf;
pub mod coordination;
pub mod fixed;
pub mod embedded;
pub mod etcd;
pub mod shipping;
mod node;
mod coordinator;
mod analyzer;
mod cluster;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use fanpcap_cli::streams;

/// A capture cluster: several machines behind a mirror port share its packets.
#[derive(Debug, Parser)]
#[command(name = "fanpcap-cluster", version, max_term_width = 100)]
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
}

/// Parses the command line and runs the subcommand.
pub fn main() -> ExitCode {
    streams::ended(run(&Arguments::parse().command))
}

fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Node(arguments) => node::run(arguments),
        Command::Coordinator(arguments) => coordinator::run(arguments),
        Command::Analyzer(arguments) => analyzer::run(arguments),
        Command::Cluster(arguments) => cluster::run(arguments),
    }
}
