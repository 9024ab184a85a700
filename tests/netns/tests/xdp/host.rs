//! What the host gets of the packets that are captured, and what it sends.

use anyhow::{Result, ensure};
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::{Wire, ensure_each_once, on_wire};
use fanpcap_testkit::Direction;
use fanpcap_testkit::member::{finish, wait_for_packets};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::veth::ip;

use crate::scene::{await_free_device, ensure_on_page, start, start_as};

fn frames() -> Result<Vec<Frame>> {
    traffic::frames(1, &traffic::flows(1, 20), 0..1000)
}

/// A config file.
fn config(wire: &Wire, lines: &str) -> Result<std::path::PathBuf> {
    let path = wire.scratch.new_file("pcap.conf");
    std::fs::write(&path, lines)?;
    Ok(path)
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_host_gets_all_packets() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let host = wire.tcpdump()?.start(&wire.scratch)?;
        let member = start(wire)?;
        let frames = frames()?;
        wire.send_as_tap(&frames)?;
        finish(vec![member, host], 2 * frames.len()).map(drop)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_the_host_sends_is_captured_unless_settings_say_otherwise() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let member = start(wire)?;
        let without = config(wire, "driver@vb = xdp\noutgoing@vb = no\n")?;
        let incoming = start_as(wire, wire.tcpdump()?.set("PCAP_CONFIG", without))?;
        let frames = frames()?;
        wire.send(&frames)?;
        let requests = frames
            .iter()
            .filter(|it| it.direction == Direction::Request);
        ensure_each_once(&finish(vec![member], frames.len())?, &frames)?;
        finish(vec![incoming], requests.count()).map(drop)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_host_gets_nothing_that_is_stolen_and_all_again_afterwards() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let host = wire.tcpdump()?.start(&wire.scratch)?;
        let stealing = config(wire, "driver@vb = xdp\nsteal@vb = yes\n")?;
        let program = wire.tcpdump()?.set("PCAP_CONFIG", stealing);
        let member = start_as(wire, program)?;
        let frames = frames()?;
        wire.send_bytes(frames.iter().map(|it| (Direction::Request, &it.bytes[..])))?;
        finish(vec![member], frames.len())?;
        ensure!(
            host.captured() == 0,
            "{} packets at the host",
            host.captured()
        );
        await_free_device()?;
        wire.send_as_tap(&frames)?;
        let host = [host];
        wait_for_packets(&host, frames.len())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_default_routes_device_is_stolen_only_by_force() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        ip("addr add 10.9.9.1/24 dev vb")?;
        ip("route add default via 10.9.9.2 dev vb onlink")?;
        let stealing = config(wire, "driver@vb = xdp\nsteal@vb = yes\n")?;
        let refused = wire
            .tcpdump()?
            .set("PCAP_CONFIG", stealing)
            .run(&wire.scratch)?;
        let reason =
            "the default route leads through the device, and the host would lose its packets";
        ensure_on_page(reason)?;
        ensure!(refused.said.contains(reason), "{}", refused.said);
        let forced = config(wire, "driver@vb = xdp\nsteal@vb = force\n")?;
        start_as(wire, wire.tcpdump()?.set("PCAP_CONFIG", forced))?.stop()?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_below_that_of_the_default_route_is_stolen_only_by_force() -> Result<()> {
    on_wire(1, |wire| {
        ip("link add b7 type bridge")?;
        ip("link set vb master b7")?;
        ip("link set b7 up")?;
        ip("addr add 10.9.9.1/24 dev b7")?;
        ip("route add default via 10.9.9.2 dev b7 onlink")?;
        let stealing = config(wire, "driver@vb = xdp\nsteal@vb = yes\n")?;
        let stealing = wire.tcpdump()?.set("PCAP_CONFIG", stealing);
        let refused = stealing.run(&wire.scratch)?;
        let expected = "steal@DEVICE = force";
        ensure!(refused.said.contains(expected), "{}", refused.said);
        Ok(())
    })
}
