//! Runtimes that check or replace memory functions: sanitizers, other allocators, valgrind.

use std::process::Command;

use anyhow::{Result, ensure};
use fanpcap_loading::{compile, found, on_ours, run, savefile, skip};
use fanpcap_testkit::Scratch;

use crate::ways::{MARK, compare};

#[test]
fn address_sanitizer() -> Result<()> {
    // Do not report leaks: the system's library keeps memory, which is no leak of ours.
    sanitized("address", "ASAN_OPTIONS", "detect_leaks=0")
}

#[test]
fn thread_sanitizer() -> Result<()> {
    sanitized("thread", "TSAN_OPTIONS", "halt_on_error=1")
}

fn sanitized(which: &str, variable: &str, options: &str) -> Result<()> {
    let flag = format!("-fsanitize={which}");
    let scratch = Scratch::new()?;
    if compile(&scratch, "version.c", &[&flag]).is_err() {
        skip(&format!("the compiler has no {which} sanitizer"));
        return Ok(());
    }
    compare(&[&flag], |program, _| {
        // With the address space randomization of some kernels, the sanitizers' shadow memory
        // collides with other mappings.
        let mut command = on_ours("setarch")?;
        command.arg("-R").arg(program).env(variable, options);
        Ok(command)
    })
}

#[test]
fn jemalloc() -> Result<()> {
    preloaded("libjemalloc.so.2")
}

#[test]
fn tcmalloc() -> Result<()> {
    preloaded("libtcmalloc_minimal.so.4")
}

fn preloaded(allocator: &str) -> Result<()> {
    let directories = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ];
    let paths = directories.map(|dir| format!("{dir}/{allocator}"));
    let Some(path) = found(&paths.each_ref().map(String::as_str)) else {
        skip(&format!("no {allocator} here"));
        return Ok(());
    };
    compare(&[], |program, _| {
        let mut command = on_ours(program)?;
        command.env("LD_PRELOAD", &path);
        Ok(command)
    })
}

#[test]
fn valgrind_finds_no_error() -> Result<()> {
    let Ok(done) = Command::new("valgrind").arg("--version").output() else {
        skip("no valgrind here");
        return Ok(());
    };
    ensure!(done.status.success(), "valgrind --version: {}", done.status);
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "probe.c", &[])?;
    let log = scratch.file("valgrind");
    let mut command = on_ours("valgrind")?;
    command.args([
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    ]);
    command
        .arg(format!("--log-file={}", log.display()))
        .arg(&program)
        .arg(savefile(&scratch)?);
    let ended = run(&scratch, &mut command)?;
    let report = std::fs::read_to_string(&log)?;
    ensure!(ended.status.success(), "{}\n{report}", ended.status);
    ensure!(
        ended.err.trim_end().ends_with(MARK),
        "it ran on {}",
        ended.err
    );
    Ok(())
}
