//! The staged libpcap: where it is, and C programs built against it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::needs;

/// The directory with our libpcap.so.0.8: `FANPCAP_LIB_DIR`, else where the workspace stages it.
///
/// # Errors
/// When it isn't there.
pub fn library_dir() -> Result<PathBuf> {
    let dir = env::var_os("FANPCAP_LIB_DIR").map_or_else(|| staged().join("lib"), PathBuf::from);
    let library = dir.join("libpcap.so.0.8");
    ensure!(
        library.exists(),
        "no {}: build it first (make)",
        library.display()
    );
    dir.canonicalize().context("the library's directory")
}

/// Compiles a C program against the staged headers and library. It is found again at run time by
/// `LD_LIBRARY_PATH`, which [`crate::Program`] sets.
///
/// # Errors
/// What the compiler says; warnings are errors.
pub fn compile_c(source: &Path, program: &Path) -> Result<()> {
    needs::libpcap_headers()?;
    let done = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            "-I",
        ])
        .arg(staged().join("include"))
        .args([
            source.as_os_str(),
            "-o".as_ref(),
            program.as_os_str(),
            "-L".as_ref(),
        ])
        .arg(library_dir()?)
        .arg("-lpcap")
        .output()
        .context("running cc")?;
    let complaint = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "cc {}:\n{complaint}",
        source.display()
    );
    Ok(())
}

fn staged() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fanpcap")
}
