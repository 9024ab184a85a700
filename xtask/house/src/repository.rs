//! The repository's root and its files.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files that match one of the patterns of git, relative to the root. Files that git ignores
/// are not among them.
///
/// # Errors
/// git can't list them.
pub(crate) fn files(patterns: &[&str]) -> Result<Vec<PathBuf>> {
    let root = root();
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let listed = git.args(patterns).current_dir(&root).output();
    let listed = String::from_utf8(listed.context("git ls-files")?.stdout)?;
    Ok(listed
        .lines()
        .map(PathBuf::from)
        .filter(|path| root.join(path).is_file())
        .collect())
}
