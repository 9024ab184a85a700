//! Formatting, lints, dependencies, and the rules that no lint knows.

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::tally::Tally;
use crate::{sources, tree};

pub(crate) fn run() -> Result<Tally> {
    let mut tally = Tally::default();
    tool(&mut tally, "formatting", "fmt", &["--all", "--check"])?;
    let lints = [
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    tool(&mut tally, "lints", "clippy", &lints)?;
    tool(
        &mut tally,
        "dependencies",
        "deny",
        &["--all-features", "check"],
    )?;
    tally.check("the library's dependencies", &library_dependencies());
    sources::check(&mut tally)?;
    Ok(tally)
}

/// Runs one of cargo's subcommands, if it is installed.
fn tool(tally: &mut Tally, name: &str, subcommand: &str, arguments: &[&str]) -> Result<()> {
    let mut probe = tree::cargo(&[subcommand, "--version"])?;
    let installed = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !installed.context("starting cargo")?.success() {
        tally.skip(name, &format!("cargo {subcommand} is not installed"));
        return Ok(());
    }
    let mut command = tree::cargo(&[subcommand])?;
    let outcome = tree::run(command.args(arguments)).map(|()| format!("cargo {subcommand}"));
    tally.check(name, &outcome);
    Ok(())
}

/// What programs load brings no crate with it but libc.
fn library_dependencies() -> Result<String> {
    let tree = [
        "tree",
        "-p",
        "fanpcap-abi",
        "-e",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    let listing = tree::output(&mut tree::cargo(&tree)?)?;
    let names = listing.lines().filter_map(|line| line.split(' ').next());
    let foreign: BTreeSet<&str> = names.filter(|name| !name.starts_with("fanpcap")).collect();
    ensure!(foreign == BTreeSet::from(["libc"]), "they are {foreign:?}");
    Ok("libc".to_owned())
}
