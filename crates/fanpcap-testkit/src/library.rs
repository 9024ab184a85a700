//! The staged libpcap: where it is, and C programs built against it.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

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

/// The programs that this process has compiled, by source. An open file outlives its name.
static COMPILED: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());

/// Compiles a C program against the staged headers and library, or copies what it was compiled to
/// before. It is found again at run time by `LD_LIBRARY_PATH`, which [`crate::Program`] sets.
///
/// # Errors
/// What the compiler says; warnings are errors.
pub fn compile_c(source: &Path, program: &Path) -> Result<()> {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(earlier) = compiled.get(source) {
        return copy(earlier.try_clone()?, program);
    }
    run_compiler(source, program)?;
    compiled.insert(source.to_owned(), File::open(program)?);
    Ok(())
}

/// Copies a program in another process: a child that another thread forks at this moment would keep
/// the new file open for writing, and nobody could execute it (ETXTBSY).
fn copy(earlier: File, program: &Path) -> Result<()> {
    // As the linker does: one that runs stays what it is.
    if program.exists() {
        fs::remove_file(program)?;
    }
    let mut command = Command::new("cp");
    command.arg("/dev/stdin").arg(program).stdin(earlier);
    let status = command.status();
    ensure!(status.context("running cp")?.success(), "cp failed");
    Ok(())
}

fn run_compiler(source: &Path, program: &Path) -> Result<()> {
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
