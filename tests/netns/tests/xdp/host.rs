//! What the host gets of the packets that are captured, and what it sends.

use anyhow::{Result, ensure};
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::{Wire, ensure_each_once};
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

/// Why a device is not stolen, what brings that about, and what ends it.
const USES: [(&str, &str, &str); 9] = [
    (
        "it has an IP address",
        "addr add 10.9.9.1/24 dev vb",
        "addr del 10.9.9.1/24 dev vb",
    ),
    (
        "a route leads through it",
        "route add default dev vb",
        "route del default dev vb",
    ),
    (
        "a route leads through it",
        "route add 10.7.0.0/16 dev vb table 100",
        "route flush table 100",
    ),
    (
        "another device stands on it",
        "link add b7 type bridge",
        "link del b7",
    ),
    (
        "another device stands on it",
        "link add link vb name v7 type vlan id 7",
        "link del v7",
    ),
    (
        "another device stands on it",
        "link add link vb name m7 type macvlan",
        "link del m7",
    ),
    (
        "another device stands on it",
        "link add x7 type vxlan id 7 group 239.1.1.1 dstport 4789 dev vb",
        "link del x7",
    ),
    (
        "another device stands on it",
        "link add link vb name i7 type ipvlan",
        "link del i7",
    ),
    (
        "a container's device may stand on it",
        "link add link vb name c7 netns fanpcap-steal type macvlan",
        "-n fanpcap-steal link del c7",
    ),
];

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_that_the_host_uses_is_stolen_only_by_force() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let _ = ip("netns del fanpcap-steal");
        ip("netns add fanpcap-steal")?;
        let stealing = config(wire, "driver@vb = xdp\nsteal@vb = yes\n")?;
        for (reason, begin, end) in USES {
            if let Err(error) = ip(begin) {
                eprintln!("passed by, as this kernel can't: {begin}: {error:#}");
                continue;
            }
            match begin {
                "link add b7 type bridge" => ip("link set vb master b7")?,
                _ if end.starts_with("-n") => ip("-n fanpcap-steal link set c7 up")?,
                _ => {}
            }
            let program = wire.tcpdump()?.set("PCAP_CONFIG", stealing.clone());
            let refused = program.run(&wire.scratch)?;
            ip(end)?;
            ensure!(refused.said.contains(reason), "{begin}: {}", refused.said);
            ensure_on_page(reason)?;
        }
        ip("netns del fanpcap-steal")?;
        ip("addr add 10.9.9.1/24 dev vb")?;
        let forced = config(wire, "driver@vb = xdp\nsteal@vb = force\n")?;
        start_as(wire, wire.tcpdump()?.set("PCAP_CONFIG", forced))?.stop()?;
        ip("addr del 10.9.9.1/24 dev vb")?;
        start_as(wire, wire.tcpdump()?.set("PCAP_CONFIG", stealing))?.stop()?;
        Ok(())
    })
}
