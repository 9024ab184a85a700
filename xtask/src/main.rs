//! The commands that make and .ci/run call: one subcommand per file.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command's output is for the terminal"
)]

mod tally;
mod tree;
mod programs;
mod harness;
mod archive;
mod bare;
mod shared_object;
mod sources;
mod toolchain;
mod stage;
mod extension;
mod symbols;
mod least;
mod check;
mod guest;
mod fuzz;
mod uninstall;
mod install;
mod deb;
mod release;
mod test;

use std::env;
use std::process::ExitCode;

use anyhow::{Result, bail};

use tally::Tally;

const USAGE: &str = "usage: cargo run -p xtask -- stage [--all] | test [TIER...] | test --name NAME | test --long | bare [ROOT...] | release [ROOT...] \
                     | guest [KERNEL...] | guest KERNEL -- COMMAND | guest-command KERNEL FILE | check | least | symbols | install PREFIX | uninstall PREFIX | deb | dpdk | deb-dpdk";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(tally) if tally.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<Tally> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["stage"] => stage::run(stage::build).map(|()| Tally::default()),
        ["stage", "--all"] => stage::run(stage::everything).map(|()| Tally::default()),
        ["deb"] => deb::run().map(|()| Tally::default()),
        ["dpdk"] => deb::dpdk::stage().map(|()| Tally::default()),
        ["deb-dpdk"] => deb::dpdk::package().map(|()| Tally::default()),
        ["symbols"] => counted(symbols::run),
        ["test", "--name", name] => counted(|| test::named(name)),
        ["test", "--long"] => counted(test::long),
        ["test", ref tiers @ ..] => counted(|| test::run(tiers)),
        ["bare", ref names @ ..] => counted(|| bare::run(names)),
        ["release", ref names @ ..] => counted(|| release::run(names)),
        ["guest-command", series, to] => {
            guest::write_command(series, to).map(|()| Tally::default())
        }
        ["guest", name, "--", ref line @ ..] => guest::command(name, line),
        ["guest", ref names @ ..] => counted(|| guest::run(names)),
        ["least"] => counted(least::run),
        ["check"] => counted(check::run),
        ["install", prefix] => install::run(prefix).map(|()| Tally::default()),
        ["uninstall", prefix] => uninstall::run(prefix).map(|()| Tally::default()),
        _ => bail!("{USAGE}"),
    }
}

/// Runs work that counts tests, and prints the last line that scripts read.
fn counted(work: impl FnOnce() -> Result<Tally>) -> Result<Tally> {
    let tally = work().unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        Tally::one_failed(&format!("{error:#}"))
    });
    println!("{tally}");
    Ok(tally)
}
