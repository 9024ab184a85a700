//! `fanpcap bench`: runs the program `fanpcap-bench`, which measures this library against its peers.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Error, Result};
use clap::Args;

/// The program's file.
const NAME: &str = "fanpcap-bench";

/// Measures this library against its peers, on this machine (as root)
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// What fanpcap-bench(1) tells of
    #[arg(
        value_name = "ARG",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// Becomes that program.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    Err(become_bench(&[], &arguments.words))
}

/// Shows its help on these words.
pub(crate) fn help(of: &[OsString]) -> Result<ExitCode> {
    Err(become_bench(&["help"], of))
}

/// Shows what the last of its words may be, for completion.
pub(crate) fn complete(words: &[String]) -> Result<ExitCode> {
    Err(become_bench(&["complete", "--"], words))
}

/// Returns only what keeps this process from being that program.
fn become_bench(first: &[&str], words: &[impl AsRef<OsStr>]) -> Error {
    match program() {
        Ok(program) => {
            let error = Command::new(&program).args(first).args(words).exec();
            Error::new(error).context(format!("starting {}", program.display()))
        }
        Err(error) => error,
    }
}

/// The program's file: beside the command as it is built, or in PREFIX/libexec as it is installed.
fn program() -> Result<PathBuf> {
    let command = env::current_exe().context("where this command is")?;
    let directory = command.parent().context("where this command is")?;
    let places = [directory, &directory.join("../libexec/fanpcap")].map(|place| place.join(NAME));
    let [beside, installed] = places.each_ref().map(|place| place.display().to_string());
    let found = places.into_iter().find(|place| place.exists());
    found.with_context(|| {
        format!("bench is a program of its own, {NAME}, which is not installed: there is neither {beside} nor {installed}")
    })
}
