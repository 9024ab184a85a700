//! Several devices in one name are refused, whether the devices are real or virtual.

use anyhow::{Context, Result, ensure};
use fanpcap_netns::{Wire, on_wire};
use fanpcap_testkit::Program;

#[test]
#[ignore = "needs root: run by make test"]
fn several_virtual_devices_are_several_devices() -> Result<()> {
    on_wire(1, |wire| {
        let real = refusal(wire, "vb^va")?;
        for name in ["vb:1^va", "vb^va:1", "vb:1^va:2"] {
            let other = refusal(wire, name)?;
            ensure!(other == real, "{name}: {other:?}, not {real:?}");
        }
        Ok(())
    })
}

/// Why a handle on these devices can't have a group, without the place in the name.
fn refusal(wire: &Wire, devices: &str) -> Result<String> {
    let program = Program::new(wire.compile("member")?, "")?.group(5, "hash");
    let ended = program.args([devices, "0"]).run(&wire.scratch)?;
    ensure!(!ended.status.success(), "{devices}: {}", ended.said);
    let reason = ended.said.lines().find_map(|line| {
        let (_, placed) = line.split_once("device:1:")?;
        Some(placed.split_once(": ")?.1.to_owned())
    });
    reason.with_context(|| format!("{devices}: {}", ended.said))
}
