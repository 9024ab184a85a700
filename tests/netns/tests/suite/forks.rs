//! Processes that a capturing one starts: they neither hang in its locks nor stay in its groups.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, FAR_DEVICE, Wire, on_wire};
use fanpcap_testkit::Program;

#[test]
#[ignore = "needs root: run by make test"]
fn a_child_closes_handles_whatever_other_threads_were_doing() -> Result<()> {
    on_wire(1, |wire| {
        ensure_says(wire, "forks", &[DEVICE, "7"], "all children ended")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_program_that_was_started_stays_in_no_group() -> Result<()> {
    on_wire(1, |wire| {
        let arguments = [DEVICE, "7", FAR_DEVICE];
        let alone = "received 100 of 100, members 1\n";
        ensure_says(wire, "outlived", &arguments, alone)
    })
}

fn ensure_says(wire: &Wire, name: &str, arguments: &[&str], expected: &str) -> Result<()> {
    let program = Program::new(wire.compile(name)?, "")?.args(arguments);
    let ended = program.run(&wire.scratch)?;
    let right = ended.status.success() && ended.said.contains(expected);
    ensure!(right, "not {expected:?} but:\n{}", ended.said);
    Ok(())
}
