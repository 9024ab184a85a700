//! The system's library that our library loads: its selection by FANPCAP_LIBPCAP, and the error if
//! our library finds no other library.

use std::process::Command;

use anyhow::{Result, ensure};
use fanpcap_loading::{
    LIBRARY, compile, library_dir, on_ours, on_system, run, skip, system_library,
};
use fanpcap_testkit::{Scratch, mounts};

use crate::ways::MARK;

#[test]
fn a_library_is_chosen_by_name() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "version.c", &[])?;
    let copy = scratch.file("libpcap-other.so");
    std::fs::copy(system_library()?, &copy)?;
    let mut command = on_ours(&program)?;
    let out = run(&scratch, command.env("FANPCAP_LIBPCAP", &copy))?.success()?;
    ensure!(out.trim_end().ends_with(MARK), "{out}");
    Ok(())
}

#[test]
fn ours_is_not_taken_for_the_systems() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "version.c", &[])?;
    let system = run(&scratch, &mut on_system(&program))?.success()?;
    // If FANPCAP_LIBPCAP names our own library, or a copy of it in another file, our library must
    // refuse it and use the system's library.
    let copy = scratch.file(LIBRARY);
    std::fs::copy(library_dir()?.join(LIBRARY), &copy)?;
    for ours in [library_dir()?.join(LIBRARY), copy] {
        let mut command = on_ours(&program)?;
        let out = run(&scratch, command.env("FANPCAP_LIBPCAP", &ours))?.success()?;
        assert_eq!(out.trim_end(), format!("{}{MARK}", system.trim_end()));
    }
    Ok(())
}

#[test]
fn a_chosen_library_that_is_missing_is_named() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "version.c", &[])?;
    let mut command = on_ours(&program)?;
    command.env("FANPCAP_LIBPCAP", "/nonexistent/libpcap.so");
    let out = run(&scratch, &mut command)?.success()?;
    let reason = out.lines().nth(1).unwrap_or_default();
    ensure!(
        reason.contains("/nonexistent/libpcap.so (no such file)"),
        "{out}"
    );
    Ok(())
}

#[test]
#[ignore = "needs root: hides the system's library in a mount namespace"]
fn without_a_system_library_every_path_tried_is_named() -> Result<()> {
    if let Some(reason) = mounts::hindrance()? {
        skip(&reason);
        return Ok(());
    }
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "version.c", &[])?;
    let (ours, system) = (library_dir()?.join(LIBRARY), system_library()?);
    // Our library replaces the system's file. So the search finds our library in all directories,
    // and refuses it everywhere.
    let mut command = Command::new("unshare");
    command.args([
        "-m",
        "sh",
        "-c",
        "mount --bind \"$1\" \"$2\" && LD_LIBRARY_PATH=$3 exec \"$4\"",
        "sh",
    ]);
    command
        .arg(&ours)
        .arg(&system)
        .arg(library_dir()?)
        .arg(&program);
    command.env("FANPCAP_LIBPCAP", &ours);
    let out = run(&scratch, &mut command)?.success()?;
    ensure!(
        out.contains(&format!("{} (is fanpcap itself)", ours.display())),
        "{out}"
    );
    ensure!(out.matches("(is fanpcap itself)").count() > 1, "{out}");
    ensure!(out.contains(MARK.trim_start_matches(" + ")), "{out}");
    Ok(())
}
