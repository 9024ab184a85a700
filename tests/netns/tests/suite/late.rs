//! Late joins: a handle that has already captured, and a handle that another group has refused.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, FAR_DEVICE, on_wire};
use fanpcap_testkit::Program;

#[test]
#[ignore = "needs root: run by make test"]
fn packets_before_the_group_count_for_the_handle_only() -> Result<()> {
    on_wire(1, |wire| {
        let program = Program::new(wire.compile("late")?, "")?.args([DEVICE, "7", FAR_DEVICE]);
        let ended = program.run(&wire.scratch)?;
        // Each handle received 50 packets before its join, and half of 10 packets since.
        let line = "received 5, group_received 10, ps_recv 55\n";
        ensure!(ended.said == line.repeat(2), "{}", ended.said);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_refused_handle_joins_another_group() -> Result<()> {
    ensure_joins(&["at-once"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_refused_handle_may_be_activated_again() -> Result<()> {
    ensure_joins(&["by-activation"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_refused_handle_keeps_the_filter_that_it_is_given() -> Result<()> {
    for how in ["at-once", "by-activation"] {
        ensure_joins(&[how, "ether proto 0x88b5"])?;
    }
    Ok(())
}

fn ensure_joins(how: &[&str]) -> Result<()> {
    on_wire(1, |wire| {
        let program = Program::new(wire.compile("retry")?, "")?;
        let program = program.args([DEVICE, FAR_DEVICE]).args(how);
        let ended = program.run(&wire.scratch)?;
        let joined = "group 8, 10 packets, 0 others\n";
        ensure!(ended.said == joined, "{how:?}: {}", ended.said);
        Ok(())
    })
}
