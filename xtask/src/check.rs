//! Formatting, lints, dependencies, and the rules that no lint knows.

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::tally::Tally;
use crate::{house, least, sources, tree};

pub(crate) fn run() -> Result<Tally> {
    let mut tally = Tally::default();
    tool(&mut tally, "formatting", "fmt --all --check")?;
    // Who has not the least supported version lints with his own.
    match least::Rust::find() {
        Ok(rust) => tally.check("lints", &rust.lint()),
        Err(_) => tool(&mut tally, "lints", least::LINTS)?,
    }
    tool(&mut tally, "dependencies", "deny --all-features check")?;
    tally.check("fuzz targets", &fuzz_targets());
    tally.check("the library's dependencies", &library_dependencies());
    sources::check(&mut tally)?;
    house::check(&mut tally);
    Ok(tally)
}

/// Runs one of cargo's subcommands, if it is installed. In CI those of the toolchain must be.
fn tool(tally: &mut Tally, name: &str, line: &str) -> Result<()> {
    let arguments: Vec<&str> = line.split(' ').collect();
    let subcommand = arguments[0];
    let mut probe = tree::cargo(&[subcommand, "--version"])?;
    let found = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let installed = found.context("starting cargo")?.success();
    if !installed && (!tree::is_ci() || subcommand == "deny") {
        tally.skip(name, &format!("cargo {subcommand} is not installed"));
        return Ok(());
    }
    let outcome = tree::run(&mut tree::cargo(&arguments)?);
    tally.check(name, &outcome.map(|()| format!("cargo {subcommand}")));
    Ok(())
}

/// They are a workspace of their own, so that nothing else compiles them. Without libFuzzer, which
/// only a link would need.
fn fuzz_targets() -> Result<String> {
    let line = "check --quiet --locked --bins --manifest-path fuzz/Cargo.toml";
    let arguments: Vec<&str> = line.split(' ').collect();
    let mut cargo = tree::cargo(&arguments)?;
    cargo.env("CUSTOM_LIBFUZZER_PATH", "/dev/null");
    // Crates of others are checked already.
    cargo.env("CARGO_TARGET_DIR", tree::target()?);
    tree::run(&mut cargo)?;
    Ok("cargo check".to_owned())
}

const LIBRARY_TREE: &str = "tree -p fanpcap-abi -e normal --prefix none --format {p}";

/// What programs load brings no crate with it but libc.
fn library_dependencies() -> Result<String> {
    let arguments: Vec<&str> = LIBRARY_TREE.split(' ').collect();
    let listing = tree::output(&mut tree::cargo(&arguments)?)?;
    let names = listing.lines().filter_map(|line| line.split(' ').next());
    let foreign: BTreeSet<&str> = names.filter(|name| !name.starts_with("fanpcap")).collect();
    ensure!(foreign == BTreeSet::from(["libc"]), "they are {foreign:?}");
    Ok("libc".to_owned())
}
