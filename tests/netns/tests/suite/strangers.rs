//! Members belong to different applications if their executables differ. The names of their threads
//! do not matter.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::{Member, Program};

#[test]
#[ignore = "needs root: run by make test"]
fn a_threads_name_makes_no_stranger() -> Result<()> {
    on_wire(1, |wire| {
        let program = wire.compile("renamed")?;
        let one = start(wire, &program, &["worker"])?;
        let said = start(wire, &program, &["core"])?.stop()?.said;
        one.stop()?;
        ensure!(!said.contains("warning"), "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_process_is_no_stranger_to_itself() -> Result<()> {
    on_wire(1, |wire| {
        let program = wire.compile("renamed")?;
        let said = start(wire, &program, &["worker", "core"])?.stop()?.said;
        ensure!(said.contains("core in group 7"), "{said}");
        ensure!(!said.contains("warning"), "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn another_executable_is_a_stranger_under_any_name() -> Result<()> {
    on_wire(1, |wire| {
        let program = wire.compile("renamed")?;
        let other = wire.scratch.file("other");
        fs::copy(&program, &other)?;
        let one = start(wire, &program, &["worker"])?;
        let said = start(wire, &other, &["worker"])?.stop()?.said;
        let warned = said.contains("warning 1:") && said.contains(&one.pid().to_string());
        ensure!(warned, "no warning in:\n{said}");
        one.stop()?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_strangers_name_can_not_act_on_a_terminal() -> Result<()> {
    on_wire(1, |wire| {
        let program = wire.compile("renamed")?;
        let other = wire.scratch.file("other");
        fs::copy(&program, &other)?;
        let _one = start(wire, &other, &["a\u{1b}[31mX"])?;
        let said = start(wire, &program, &["core"])?.stop()?.said;
        let shown = said.contains("a?[31mX") && !said.contains('\u{1b}');
        ensure!(shown, "{said:?}");
        Ok(())
    })
}

/// Starts a program that opens a member under each of these thread names.
fn start(wire: &Wire, program: &Path, names: &[&str]) -> Result<Member> {
    Program::new(program, "ready")?
        .group(7, "hash")
        .arg(DEVICE)
        .args(names)
        .start(&wire.scratch)
}
