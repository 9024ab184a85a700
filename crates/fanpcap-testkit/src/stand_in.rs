//! Stand-ins for what tests do not have: shared objects of C code, which other programs load.

use anyhow::{Context, Result, ensure};
use fanpcap_testbed::Scratch;
use std::path::PathBuf;
use std::process::Command;

/// Compiles the shared object `object` from the file `source` of this crate's C code.
///
/// # Errors
/// The compiler's messages; warnings are errors.
pub(crate) fn compile(scratch: &Scratch, source: &str, object: &str) -> Result<PathBuf> {
    let source = format!("{}/c/{source}", env!("CARGO_MANIFEST_DIR"));
    let object = scratch.file(object);
    let done = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
        // Some compilers have `-z now` as their default.
        .args(["-shared", "-fPIC", "-Wl,-z,lazy", &source, "-o"])
        .arg(&object)
        .output()
        .context("running cc")?;
    let complaint = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "cc {source}:\n{complaint}");
    Ok(object)
}
