//! What the doctor says of a device that a poller serves: a device of DPDK, which is invented.

use std::process::Command;

use anyhow::{Result, ensure};
use fanpcap_testkit::{Scratch, dpdk};

use crate::running::{Member, Poller, command, within};

/// What doctor prints about a device.
fn doctor(device: &str) -> Result<String> {
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
    let output = doctor
        .args(["doctor", device])
        .env("PCAP_CONFIG", "/dev/null")
        .output()?;
    ensure!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
#[ignore = "needs root: a poller's socket and pools"]
fn a_device_of_dpdk_that_is_served_lacks_nothing() -> Result<()> {
    within(|| {
        let scratch = Scratch::new()?;
        let said = doctor("dpdk:net_one0")?;
        ensure!(said.contains("[no-poller]"), "{said}");
        let mut command = command("dpdk:net_one0 --no-huge");
        command.env("FANPCAP_DPDK_PLUGIN", dpdk::stand_in(&scratch, &[])?);
        let poller = Poller::start_by(command, 1)?;
        let _member = Member::enter_at("dpdk", "net_one0")?;
        let said = doctor("dpdk:net_one0")?;
        let head = "Looked at dpdk:net_one0 (groups: 1, members: 1), settings";
        ensure!(said.starts_with(head), "{said}");
        for finding in ["[no-poller]", "[engine-lacks]"] {
            ensure!(!said.contains(finding), "{said}");
        }
        poller.end()?;
        Ok(())
    })
}
