//! A process with raised privileges ignores the environment.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use fanpcap_loading::{LIBRARY, compile, library_dir, on_system, run, skip};
use fanpcap_testkit::{Scratch, netns};

use crate::ways::MARK;

const NOBODY: u32 = 65534;

#[test]
#[ignore = "needs root: gives a program a file capability and runs it as nobody"]
fn a_program_with_a_file_capability_ignores_the_environment() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = program_for_nobody(&scratch)?;
    let capable = Command::new("setcap")
        .arg("cap_net_raw+ep")
        .arg(&program)
        .status();
    if !capable.is_ok_and(|status| status.success()) {
        skip("files can't have capabilities here");
        return Ok(());
    }
    netns::within_new(|| {
        let raised = run(
            &scratch,
            misconfigured(&program, &scratch).uid(NOBODY).gid(NOBODY),
        )?
        .success()?;
        if raised.starts_with("secure 0") {
            skip("the temporary directory's files give no capabilities");
            return Ok(());
        }
        ensure!(
            raised.contains(MARK) && raised.contains("open 1"),
            "as nobody: {raised}"
        );
        // PF_RING's library would obey its variables.
        let of_pfring = |command: &mut Command| {
            let command = command
                .arg("pfring:lo")
                .env("PF_RING_FT_CONF", "/nonexistent");
            run(&scratch, command)?.success()
        };
        let refused = of_pfring(on_system(&program).uid(NOBODY).gid(NOBODY))?;
        ensure!(refused.contains("unset PF_RING_FT_CONF"), "{refused}");
        let obeyed = of_pfring(&mut on_system(&program))?;
        ensure!(!obeyed.contains("unset"), "as root: {obeyed}");
        let plain = run(&scratch, &mut misconfigured(&program, &scratch))?.success()?;
        ensure!(
            plain.starts_with("secure 0") && plain.contains("open 0"),
            "as root: {plain}"
        );
        Ok(())
    })
}

/// Compiles a program that loads our library from a directory that the program itself names,
/// because with raised privileges the loader ignores LD_LIBRARY_PATH.
fn program_for_nobody(scratch: &Scratch) -> Result<PathBuf> {
    let library = scratch.file(LIBRARY);
    fs::copy(library_dir()?.join(LIBRARY), &library)?;
    let dir = library.parent().unwrap_or(Path::new("/"));
    let run_path = format!("-Wl,-rpath,{}", dir.display());
    let program = compile(scratch, "raised.c", &[&run_path])?;
    for path in [dir, &library, &program] {
        fs::set_permissions(path, Permissions::from_mode(0o755))?;
    }
    Ok(program)
}

/// A command with settings that would make every handle fail if the library read them.
fn misconfigured(program: &Path, scratch: &Scratch) -> Command {
    let mut command = on_system(program);
    command
        .env("PCAP_GROUP", "no number")
        .env("PCAP_CONFIG", "/nonexistent");
    command
        .env("HOME", scratch.file("home"))
        .env("FANPCAP_LIBPCAP", "/nonexistent");
    command
}
