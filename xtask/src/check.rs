//! Formatting, lints, dependencies, and that every source file says what it is for.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::tally::Tally;
use crate::tree;

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
    tally.check("opening lines", &opening_lines());
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

/// The first line of a source file says what the file is for.
fn opening_lines() -> Result<String> {
    let root = tree::root()?;
    let listing = tree::output(Command::new("git").args(["ls-files"]).current_dir(&root))?;
    let sources: Vec<PathBuf> = listing
        .lines()
        .map(|name| root.join(name))
        .filter(|path| opening(path).is_some() && path.exists())
        .collect();
    let mut silent = Vec::new();
    for path in &sources {
        let text = fs::read_to_string(path)?;
        if !opening(path).is_some_and(|opening| text.starts_with(opening)) {
            silent.push(path.strip_prefix(&root)?.display().to_string());
        }
    }
    ensure!(
        silent.is_empty(),
        "do not say what they are for: {}",
        silent.join(" ")
    );
    Ok(format!("{} files", sources.len()))
}

/// How a source file of this kind must begin.
fn opening(path: &Path) -> Option<&'static str> {
    match path.extension().and_then(OsStr::to_str)? {
        "rs" => Some("//! "),
        "c" | "cc" | "h" => Some("/* "),
        _ => None,
    }
}
