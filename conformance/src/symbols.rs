//! The symbols that the system's library exports, and those that a program uses.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_loading::system_library;

/// The names that the system's library exports.
///
/// # Errors
/// The system has no libpcap, or `nm` is missing.
pub fn exported() -> Result<BTreeSet<String>> {
    let symbols = names(&["-D", "--defined-only"], &system_library()?)?;
    ensure!(!symbols.is_empty(), "the system's library exports nothing");
    Ok(symbols)
}

/// The symbols that a program uses: undefined symbols, or data that it copies at its start.
///
/// # Errors
/// `nm` is missing.
pub fn used(program: &Path, exported: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let symbols = names(&["-D"], program)?;
    Ok(symbols.intersection(exported).cloned().collect())
}

/// The version of the system's libpcap, from its file name.
///
/// # Errors
/// The system has no libpcap.
pub fn version() -> Result<String> {
    let path = system_library()?;
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let version = name.strip_prefix("libpcap.so.").map(str::to_owned);
    version.with_context(|| format!("no version in {name}"))
}

/// The names that `nm` prints. A line is `ADDRESS TYPE NAME`; an undefined symbol has no address.
fn names(options: &[&str], file: &Path) -> Result<BTreeSet<String>> {
    let done = Command::new("nm")
        .args(options)
        .arg(file)
        .output()
        .context("running nm")?;
    ensure!(
        done.status.success(),
        "nm: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    let listing = String::from_utf8_lossy(&done.stdout);
    let last = |line: &str| line.rsplit(' ').next().map(str::to_owned);
    Ok(listing.lines().filter_map(last).collect())
}
