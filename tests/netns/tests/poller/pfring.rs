//! The engine pfring, which has no poller, by the stand-in for PF_RING's library: a cluster is a
//! fan-out group of the kernel's there. No test has PF_RING.

use std::path::Path;

use anyhow::{Result, ensure};
use fanpcap_netns::{
    DEVICE, FAR_DEVICE, Wire, ensure_each_once, ensure_flows_whole, on_wire, shares,
};
use fanpcap_testkit::capture::Capture;
use fanpcap_testkit::member::{Ended, Member, wait_for_packets};
use fanpcap_testkit::{Program, Transport, library, pfring, traffic, veth};

/// tcpdump on the engine, with the stand-in in `directory`.
fn tcpdump(wire: &Wire, directory: &Path) -> Result<Program> {
    let found = format!(
        "{}:{}",
        library::library_dir()?.display(),
        directory.display()
    );
    let named = format!("pfring:{DEVICE}");
    Ok(wire.tcpdump_on(&named)?.set("LD_LIBRARY_PATH", &found))
}

fn finish(members: Vec<Member>, packets: usize) -> Result<Vec<Capture>> {
    wait_for_packets(&members, packets)?;
    let ended: Vec<Ended> = members
        .into_iter()
        .map(Member::stop)
        .collect::<Result<_>>()?;
    let mut received = 0;
    for ended in &ended {
        received += ended.count(" packets received by filter")?;
        ensure!(ended.count(" packets dropped by kernel")? == 0);
        ensure!(!ended.said.contains("WARNING"), "{}", ended.said);
    }
    ensure!(received == packets, "{received} of {packets} received");
    ended.iter().map(Ended::capture).collect()
}

#[test]
#[ignore = "needs root: run by make test"]
fn tcpdump_has_each_packet_of_its_filter_once() -> Result<()> {
    on_wire(1, |wire| {
        let stand_in = pfring::stand_in(&wire.scratch)?;
        // PF_RING's ring has no size in bytes, so it is not smaller than the application asks for.
        let all = tcpdump(wire, &stand_in)?.args(["-B", "262144"]);
        let all = all.start(&wire.scratch)?;
        let udp = tcpdump(wire, &stand_in)?.arg("udp").start(&wire.scratch)?;
        let frames = traffic::frames(1, &traffic::flows(1, 20), 0..3000)?;
        wire.send_as_tap(&frames)?;
        ensure_each_once(&finish(vec![all], frames.len())?, &frames)?;
        let is_udp = |it: &&traffic::Frame| it.flow.transport == Transport::Udp;
        let count = frames.iter().filter(is_udp).count();
        let captures = finish(vec![udp], count)?;
        ensure!(captures[0].packets.len() == count);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_members_of_a_group_are_the_rings_of_a_cluster() -> Result<()> {
    on_wire(1, |wire| {
        let stand_in = pfring::stand_in(&wire.scratch)?;
        for mode in ["flow", "flow_5_tuple", "lb"] {
            let start = || {
                tcpdump(wire, &stand_in)?
                    .group(5, mode)
                    .start(&wire.scratch)
            };
            let members = vec![start()?, start()?, start()?];
            let frames = traffic::frames(1, &traffic::flows(1, 200), 0..6000)?;
            wire.send(&frames)?;
            let captures = finish(members, frames.len())?;
            ensure_each_once(&captures, &frames)?;
            let shares = shares(&captures);
            ensure!(shares.iter().all(|&it| it > 0), "{mode}: {shares:?}");
            if mode != "lb" {
                ensure_flows_whole(&captures)?;
            }
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_goes_down_and_up_and_away() -> Result<()> {
    on_wire(1, |wire| {
        let stand_in = pfring::stand_in(&wire.scratch)?;
        let members = vec![tcpdump(wire, &stand_in)?.start(&wire.scratch)?];
        veth::ip(&format!("link set {DEVICE} down"))?;
        veth::ip(&format!("link set {DEVICE} up"))?;
        // Until then the kernel drops what is sent.
        [FAR_DEVICE, DEVICE]
            .into_iter()
            .try_for_each(veth::await_up)?;
        let frames = traffic::frames(1, &traffic::flows(1, 5), 0..20)?;
        wire.send_as_tap(&frames)?;
        wait_for_packets(&members, frames.len())?;
        veth::ip(&format!("link delete {FAR_DEVICE}"))?;
        for member in members {
            let ended = member.wait()?;
            ensure!(
                ended.said.contains("The interface disappeared"),
                "{}",
                ended.said
            );
            ensure_each_once(&[ended.capture()?], &frames)?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_pf_ring_lacks_is_an_error_with_the_reason() -> Result<()> {
    on_wire(1, |wire| {
        let stand_in = pfring::stand_in(&wire.scratch)?;
        let fails = |program: Program, expected: &str| -> Result<()> {
            let said = program.run(&wire.scratch)?.said.replace('\n', " ");
            ensure!(said.contains(expected), "{said}");
            Ok(())
        };
        let program = tcpdump(wire, &stand_in)?.group(5, "main = steer_rnd");
        fails(program, "PF_RING runs no steering programs")?;
        let sticky = tcpdump(wire, &stand_in)?.group(5, "flow +sticky");
        fails(
            sticky,
            "PF_RING gives all members of a group the same share",
        )?;
        let absent = tcpdump(wire, &stand_in)?.set("STANDIN_OPEN_ERROR", "97");
        fails(
            absent,
            "this kernel has no PF_RING: install the package pfring-dkms",
        )?;
        let missing = wire.tcpdump_on(&format!("pfring:{DEVICE}"))?;
        fails(missing, "install the package pfring of packages.ntop.org")
    })
}
