//! Signal handlers may ask for counters, as they may with the system's library (tcpdump's does).

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, on_wire};
use fanpcap_testkit::Program;

#[test]
#[ignore = "needs root: run by make test"]
fn a_plain_handles_counters_in_a_signal_handler() -> Result<()> {
    ensure_ends(&[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_members_counters_in_a_signal_handler() -> Result<()> {
    ensure_ends(&["7", "hash"])
}

fn ensure_ends(group: &[&str]) -> Result<()> {
    on_wire(1, |wire| {
        let program = Program::new(wire.compile("signals")?, "")?.arg(DEVICE);
        let ended = program.args(group).run(&wire.scratch)?;
        ensure!(
            ended.status.success() && ended.said.contains("done"),
            "{}",
            ended.said
        );
        Ok(())
    })
}
