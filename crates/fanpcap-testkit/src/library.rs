//! C programs built against the staged libpcap.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
pub use fanpcap_testbed::library::library_dir;
use fanpcap_testbed::library::staged;

use crate::needs;

/// The programs that this process has compiled, by their sources. The files are open, so they stay
/// readable after a test has removed their names.
static COMPILED: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());

/// Compiles a C program against the staged headers and library, or copies the result of an earlier
/// compilation. At run time, the library is found by `LD_LIBRARY_PATH`, which [`crate::Program`]
/// sets.
///
/// # Errors
/// The compiler's messages; warnings are errors.
pub fn compile_c(source: &Path, program: &Path) -> Result<()> {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(earlier) = compiled.get(source) {
        return copy(earlier.try_clone()?, program);
    }
    run_compiler(source, program)?;
    compiled.insert(source.to_owned(), File::open(program)?);
    Ok(())
}

/// Copies a program in a child process. If this process wrote the new file, a child that another
/// thread forks at this moment would keep the file open for writing. Then execve(2) would fail
/// (ETXTBSY).
fn copy(earlier: File, program: &Path) -> Result<()> {
    // Remove the old file first, as the linker does: a running program keeps its file.
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

/// Checks that users without capabilities can load our library, which may be where only root can
/// read it. If not, this function prints SKIP.
///
/// # Errors
/// The library isn't staged.
#[allow(clippy::print_stdout, reason = "the tiers read it in a test's output")]
pub fn is_for_all_users() -> Result<bool> {
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut test = Command::new("setpriv");
    test.args(nobody).args(["test", "-r"]).arg(library_dir()?);
    let is_readable = test.output()?.status.success();
    if !is_readable {
        println!("SKIP: another user can't read our library");
    }
    Ok(is_readable)
}
