//! A thousand handles, opened one after another and at the same time, leave no resources behind.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, on_wire};
use fanpcap_testkit::Program;

#[test]
#[ignore = "needs root: run by make test"]
fn of_a_thousand_handles_nothing_is_left() -> Result<()> {
    on_wire(1, |wire| {
        let program = Program::new(wire.compile("thousand")?, "")?;
        let program = program.arg(DEVICE).set("PCAP_DRIVER", "tpacket");
        let ended = program.run(&wire.scratch)?;
        ensure!(ended.status.success(), "{}", ended.said);
        let nothing = "left: 0 descriptors, 0 mappings of rings, 0 packet sockets, no memory";
        ensure!(ended.said.trim_end() == nothing, "{}", ended.said);
        Ok(())
    })
}
