//! Plugins for DPDK: one without DPDK that invents its devices, and the real one, if DPDK is
//! installed.

use crate::Scratch;
use anyhow::{Context, Result, bail, ensure};
use fanpcap_linux::wait::{POLLIN, wait};
use std::any::Any;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fanpcap-dpdk")
        .join(name)
}

/// Compiles the plugin that invents its devices. `flags` are more arguments of the compiler.
///
/// # Errors
/// There is no C compiler.
pub fn stand_in(scratch: &Scratch, flags: &[&str]) -> Result<PathBuf> {
    let text = fs::read_to_string(source("tests/stand_in.c"))?;
    compile(&text, scratch, flags)
}

/// Compiles this text of C into a shared object.
///
/// # Errors
/// There is no C compiler, or the text is wrong.
pub fn compile(text: &str, scratch: &Scratch, flags: &[&str]) -> Result<PathBuf> {
    let numbers = 0..;
    let free = numbers.map(|it| scratch.file(&format!("object{it}.so")));
    let mut free = free.filter(|it| !it.exists());
    let object = free.next().context("a name")?;
    let from = object.with_extension("c");
    fs::write(&from, text)?;
    run(&from, &object, flags, &[])?;
    Ok(object)
}

/// Compiles the plugin for the DPDK of this machine.
///
/// # Errors
/// DPDK's headers are missing. This function has then printed SKIP, so the test counts as skipped,
/// even if it returns the error.
///
/// # Panics
/// DPDK's headers are there, but the plugin can't be compiled. Callers take an error for a skipped
/// test.
#[allow(clippy::print_stdout, reason = "the tiers read it in a test's output")]
pub fn plugin(scratch: &Scratch) -> Result<PathBuf> {
    let (Some(flags), Some(libraries)) = (ask("--cflags"), ask("--libs")) else {
        println!("{NO_DPDK}");
        bail!("no libdpdk");
    };
    let object = scratch.file("fanpcap-dpdk.so");
    let [flags, libraries]: [Vec<&str>; 2] =
        [&flags, &libraries].map(|it| it.split_whitespace().collect());
    let source = source("plugin/fanpcap-dpdk.c");
    let compiled = run(&source, &object, &flags, &libraries);
    compiled.expect("the plugin compiles where DPDK is installed");
    Ok(object)
}

const NO_DPDK: &str = "SKIP: optional: no DPDK here ('make test-dpdk' installs libdpdk-dev)";

/// Whether DPDK's headers are here. If they are missing, this function has printed SKIP.
#[allow(clippy::print_stdout, reason = "the tiers read it in a test's output")]
pub fn is_here() -> bool {
    static IS_HERE: OnceLock<bool> = OnceLock::new();
    let is_here = *IS_HERE.get_or_init(|| ask("--cflags").is_some());
    if !is_here {
        println!("{NO_DPDK}");
    }
    is_here
}

/// What the first caller in this process has made, such as the environment of DPDK, which a process
/// can start once. The modules of a test program may have copies of a static variable.
///
/// # Panics
/// The first caller has made a value of another type.
pub fn once_in_process<T: Copy + Send + Sync + 'static>(make: impl FnOnce() -> T) -> T {
    static MADE: OnceLock<Box<dyn Any + Send + Sync>> = OnceLock::new();
    let made = MADE.get_or_init(|| Box::new(make()));
    *made.downcast_ref().expect("a value of this type")
}

/// A number for a device of DPDK that no other device of this process has had: DPDK remembers them.
pub fn new_number() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

/// What pkg-config says of DPDK; `None` without DPDK.
fn ask(what: &str) -> Option<String> {
    let said = Command::new("pkg-config")
        .args([what, "libdpdk"])
        .output()
        .ok()?;
    said.status
        .success()
        .then(|| String::from_utf8_lossy(&said.stdout).into_owned())
}

fn run(from: &Path, object: &Path, flags: &[&str], libraries: &[&str]) -> Result<()> {
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=gnu11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fPIC",
        "-shared",
    ]);
    compiler.args(flags).arg("-I").arg(source("plugin"));
    compiler.arg(from).arg("-o").arg(object).args(libraries);
    let done = compiler.arg("-pthread").output().context("running cc")?;
    let complaint = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "cc {}:\n{complaint}", from.display());
    Ok(())
}

/// Whether a descriptor is readable now.
///
/// # Errors
/// The error of poll(2).
pub fn is_readable(fd: BorrowedFd<'_>) -> Result<bool> {
    Ok(wait(Some(fd), None, Some(Duration::ZERO))?.socket & POLLIN != 0)
}

/// Whether [`plugin`] can be compiled.
pub fn is_installed() -> bool {
    ask("--cflags").is_some()
}
