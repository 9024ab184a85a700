//! Devices that the engine on XDP can't serve: packet sockets stand in for it, and the application
//! is told why.

use anyhow::{Result, ensure};
use fanpcap_netns::on_wire;
use fanpcap_testkit::veth::ip;

#[test]
#[ignore = "needs root: run by make test"]
fn packet_sockets_stand_in_where_the_engine_can_not_serve() -> Result<()> {
    on_wire(1, |wire| {
        ip("link add br0 type bridge")?;
        ip("link set br0 up")?;
        for device in ["any", "lo", "br0"] {
            let program = wire.tcpdump_on(device)?.set("PCAP_DRIVER", "xdp");
            let member = program.start(&wire.scratch)?;
            let said = member.said()?;
            ensure!(
                said.contains("packet sockets are read, not the engine xdp"),
                "{device}: {said}"
            );
            ensure!(
                said.contains("(set by PCAP_DRIVER=xdp)"),
                "{device}: {said}"
            );
            member.stop()?;
        }
        Ok(())
    })
}
