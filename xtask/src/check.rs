//! Checks formatting, lints, dependencies, and the rules for which there is no lint.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::tally::Tally;
use crate::toolchain::Rust;
use crate::{sources, stage, tree};

pub(crate) fn run() -> Result<Tally> {
    let mut tally = Tally::default();
    let rust = Rust::least_or_own();
    let cargo = |line: &str| tree::cargo(&line.split(' ').collect::<Vec<_>>());
    let clippy = |line: &str| {
        let mut clippy = rust.command("cargo-clippy", line);
        // Only the linker needs libFuzzer, and clippy does not link the fuzz targets.
        clippy.env("CUSTOM_LIBFUZZER_PATH", "/dev/null");
        Ok(clippy)
    };
    tool(&mut tally, "formatting", cargo, "fmt --all --check")?;
    tool(&mut tally, "lints", clippy, LINTS)?;
    tool(
        &mut tally,
        "dependencies",
        cargo,
        "deny --all-features check",
    )?;
    tally.check("the library's dependencies", &library_dependencies());
    tally.check("programs without test kits", &without_test_kits());
    sources::check(&mut tally)?;
    tally.check("order of crates and modules", &in_order());
    Ok(tally)
}

const LINTS: &str = "clippy --workspace --all-targets --quiet --keep-going -- -D warnings";

/// Runs one of cargo's subcommands, if it is installed. In CI the toolchain's own subcommands must
/// be installed.
fn tool(
    tally: &mut Tally,
    name: &str,
    command: impl Fn(&str) -> Result<Command>,
    line: &str,
) -> Result<()> {
    let (subcommand, _) = line.split_once(' ').context("a subcommand and more")?;
    let mut probe = command(&format!("{subcommand} --version"))?;
    let found = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let installed = found.is_ok_and(|status| status.success());
    if !installed && (!tree::is_ci() || subcommand == "deny") {
        tally.skip(name, &format!("cargo {subcommand} is not installed"));
        return Ok(());
    }
    let outcome = tree::run(&mut command(line)?);
    tally.check(name, &outcome.map(|()| format!("cargo {subcommand}")));
    Ok(())
}

/// Checks that the library depends on no crate except libc.
fn library_dependencies() -> Result<String> {
    let mut foreign = linked(&["fanpcap-abi"])?;
    foreign.retain(|name| !name.starts_with("fanpcap"));
    ensure!(
        foreign == ["libc".to_owned()].into(),
        "the library links {foreign:?}"
    );
    Ok("libc".to_owned())
}

/// Checks that no installed program has code of a test kit.
fn without_test_kits() -> Result<String> {
    let mut kits = linked(&stage::PACKAGES)?;
    kits.retain(|name| name.ends_with("-testkit"));
    ensure!(kits.is_empty(), "programs link {kits:?}");
    Ok(stage::PACKAGES.join(", "))
}

/// The names of all crates that are linked into packages.
fn linked(packages: &[&str]) -> Result<BTreeSet<String>> {
    let mut arguments: Vec<&str> = LINKED.split(' ').collect();
    arguments.extend(packages.iter().flat_map(|package| ["-p", package]));
    let listing = tree::output(&mut tree::cargo(&arguments)?)?;
    let names = listing.lines().filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}

const LINKED: &str = "tree -e normal --prefix none --format {p}";

fn in_order() -> Result<String> {
    let line = ["run", "--quiet", "-p", "fanpcap-house"];
    Ok(tree::output(&mut tree::cargo(&line)?)?.trim().to_owned())
}
