//! Several devices in one name are refused as the device of a member. The reason is the same for
//! real and for virtual devices.

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

/// The message that refuses a member on these devices.
fn refusal(wire: &Wire, devices: &str) -> Result<String> {
    let program = Program::new(wire.compile("member")?, "")?.group(5, "hash");
    let ended = program.args([devices, "0"]).run(&wire.scratch)?;
    ensure!(!ended.status.success(), "{devices}: {}", ended.said);
    let reason = ended.said.split_once("pcap_activate: ");
    let reason = reason.map(|(_, reason)| reason.to_owned());
    reason.with_context(|| format!("{devices}: {}", ended.said))
}
