//! The symbols that the system's library exports, and those that a program uses.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_loading::system_library;

/// The names that the system's library exports.
///
/// # Errors
/// When there is no such library, or no `nm`.
pub fn exported() -> Result<BTreeSet<String>> {
    let symbols = names(&["-D", "--defined-only"], &system_library()?)?;
    ensure!(!symbols.is_empty(), "the system's library exports nothing");
    Ok(symbols)
}

/// The symbols that a program uses: undefined symbols, or data that it copies at its start.
///
/// # Errors
/// When there is no `nm`.
pub fn used(program: &Path, exported: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let symbols = names(&["-D"], program)?;
    Ok(symbols.intersection(exported).cloned().collect())
}

/// The system's libpcap's version, as its file is called.
///
/// # Errors
/// When there is no such library.
pub fn version() -> Result<String> {
    let path = system_library()?;
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let version = name.strip_prefix("libpcap.so.").map(str::to_owned);
    version.with_context(|| format!("a version in {name}"))
}

/// Lines are `ADDRESS TYPE NAME`, without the address where a symbol is undefined.
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
