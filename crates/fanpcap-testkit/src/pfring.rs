//! A stand-in for PF_RING's library, which tests put in its place.

use crate::stand_in::compile;
use anyhow::{Context, Result, ensure};
use fanpcap_testbed::Scratch;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the stand-in. Returns its directory, for `LD_LIBRARY_PATH`.
///
/// # Errors
/// The compiler's messages; warnings are errors.
pub fn stand_in(scratch: &Scratch) -> Result<PathBuf> {
    let library = compile(scratch, "pfring.c", "libpfring.so")?;
    let directory = library.parent().map(Path::to_path_buf);
    directory.context("the library's directory")
}

/// A variable of the process that runs a test again.
const AGAIN: &str = "FANPCAP_WITH_STAND_IN";

/// Runs `test` of the calling program again, in a process that finds the stand-in, with these
/// variables. In that process, this function returns true at once.
///
/// # Errors
/// The test fails there.
pub fn is_again(test: &str, variables: &[(&str, &str)]) -> Result<bool> {
    if env::var_os(AGAIN).is_some() {
        return Ok(true);
    }
    let scratch = Scratch::new()?;
    let done = Command::new(env::current_exe()?)
        .args([test, "--exact", "--nocapture", "--include-ignored"])
        .env("LD_LIBRARY_PATH", stand_in(&scratch)?)
        .env(AGAIN, "1")
        .envs(variables.iter().copied())
        .output()
        .context("running the test again")?;
    let said = String::from_utf8_lossy(&done.stdout);
    let complaint = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{said}{complaint}");
    ensure!(said.contains("1 passed"), "{test} is no test: {said}");
    Ok(false)
}
