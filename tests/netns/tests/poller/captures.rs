//! Captures of unmodified applications.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, Wire, ensure_each_once, ensure_flows_whole, on_wire, shares};
use fanpcap_poller::GroupCounts;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::capture::Capture;
use fanpcap_testkit::member::{Ended, Member, wait_for_packets};
use fanpcap_testkit::traffic;

use crate::scene::{Poller, tcpdump};

/// Stops members, and checks the counters that they print. Each packet of the poller's device has
/// come, and none was dropped.
fn finish(members: Vec<Member>, packets: usize) -> Result<Vec<Capture>> {
    wait_for_packets(&members, packets)?;
    let ended: Vec<Ended> = members
        .into_iter()
        .map(Member::stop)
        .collect::<Result<_>>()?;
    let mut received = 0;
    for ended in &ended {
        received += ended.count(" packets received by filter")?;
        let dropped = ended.count(" packets dropped by kernel")?;
        ensure!(dropped == 0, "{dropped} dropped");
    }
    ensure!(received == packets, "{received} of {packets} received");
    ended.iter().map(Ended::capture).collect()
}

#[test]
#[ignore = "needs root: run by make test"]
fn tcpdump_has_each_packet_once() -> Result<()> {
    for engine in ["packet", "afxdp"] {
        on_wire(1, |wire| {
            let _poller = Poller::start(engine)?;
            let named = tcpdump(wire, engine)?.start(&wire.scratch)?;
            let by_setting = wire.tcpdump()?.set("PCAP_DRIVER", engine);
            let by_setting = by_setting.start(&wire.scratch)?;
            let frames = traffic::frames(1, &traffic::flows(1, 20), 0..5000)?;
            wire.send_as_tap(&frames)?;
            for member in [named, by_setting] {
                ensure_each_once(&finish(vec![member], frames.len())?, &frames)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The copies of tcpdump in group 5.
fn group(wire: &Wire, count: usize, mode: &str) -> Result<Vec<Member>> {
    let start = |_| tcpdump(wire, "packet")?.group(5, mode).start(&wire.scratch);
    (0..count).map(start).collect()
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_groups_members_share_the_packets_flow_by_flow() -> Result<()> {
    on_wire(1, |wire| {
        let poller = Poller::start("packet")?;
        for (count, mode) in [(2, "flow"), (4, "flow"), (3, "flow+sticky"), (2, "hash")] {
            let members = group(wire, count, mode)?;
            poller.await_shares(5, count)?;
            let frames = traffic::frames(1, &traffic::flows(1, 200), 0..10_000)?;
            wire.send(&frames)?;
            let captures = finish(members, frames.len())?;
            ensure_each_once(&captures, &frames)?;
            ensure_flows_whole(&captures)?;
            let shares = shares(&captures);
            ensure!(shares.iter().all(|&it| it > 0), "{mode}: {shares:?}");
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_have_the_steering_program_weights_and_filters_that_they_ask_for() -> Result<()> {
    on_wire(1, |wire| {
        let poller = Poller::start("packet")?;
        let program = "main = udp >-> steer_rrobin";
        let members = group(wire, 2, program)?;
        let all = tcpdump(wire, "packet")?.group(6, "flow").arg("udp");
        let filtered = all.set("PCAP_CAPLEN", "60").start(&wire.scratch)?;
        poller.await_shares(5, 2)?;
        let frames = traffic::frames(1, &traffic::flows(1, 50), 0..2000)?;
        wire.send_as_tap(&frames)?;
        let is_udp = |it: &&traffic::Frame| it.flow.transport == fanpcap_testkit::Transport::Udp;
        let udp = frames.iter().filter(is_udp).count();
        ensure!(udp > 0 && udp < frames.len(), "{udp}");
        let shared = finish(members, udp)?;
        let shares = shares(&shared);
        ensure!(
            shares.iter().all(|&it| it.abs_diff(udp / 2) < 2),
            "{shares:?}"
        );
        // The counters leave out what the application's filter has rejected.
        let captures = finish(vec![filtered], udp)?;
        ensure!(captures[0].packets.len() == udp);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn another_member_reads_what_a_killed_one_has_left() -> Result<()> {
    on_wire(1, |wire| {
        let poller = Poller::start("packet")?;
        let mut members = group(wire, 2, "flow")?;
        poller.await_shares(5, 2)?;
        let stopped = members.pop().expect("two members");
        stopped.signal("STOP")?;
        let frames = traffic::frames(1, &traffic::flows(1, 100), 0..4000)?;
        wire.send_as_tap(&frames)?;
        stopped.signal("KILL")?;
        wait_for_packets(&members, frames.len())?;
        let captures: Vec<Capture> = members
            .into_iter()
            .map(|member| member.stop()?.capture())
            .collect::<Result<_>>()?;
        ensure_each_once(&captures, &frames)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_settings_file_gives_a_device_its_poller() -> Result<()> {
    on_wire(1, |wire| {
        let _poller = Poller::start("packet")?;
        let config = wire.scratch.file("pcap.conf");
        std::fs::write(&config, format!("driver@{DEVICE} = packet\n"))?;
        let member = wire.tcpdump()?.set("PCAP_CONFIG", &config);
        let member = member.start(&wire.scratch)?;
        let frames = traffic::frames(1, &traffic::flows(1, 5), 0..100)?;
        wire.send_as_tap(&frames)?;
        ensure_each_once(&finish(vec![member], frames.len())?, &frames)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn packets_for_which_the_pool_has_no_room_are_counted() -> Result<()> {
    const COUNT: usize = 40_000;
    on_wire(1, |wire| {
        let poller = Poller::start("packet")?;
        let program = tcpdump(wire, "packet")?.group(5, "flow");
        let member = program.set("PCAP_RING", "4M").start(&wire.scratch)?;
        poller.await_shares(5, 1)?;
        member.signal("STOP")?;
        let frames = traffic::frames(1, &traffic::flows(1, 20), 0..COUNT as u64)?;
        wire.send_as_tap(&frames)?;
        let seen = await_for("all packets at the poller", LIMIT, || {
            let counts = poller.counts(5);
            let is_all = |it: &GroupCounts| it.produced + it.dropped == COUNT as u64;
            Ok(counts.filter(is_all))
        })?;
        let (produced, dropped) = (
            usize::try_from(seen.produced)?,
            usize::try_from(seen.dropped)?,
        );
        ensure!(produced > 0 && dropped > 0, "{seen:?}");
        member.signal("CONT")?;
        wait_for_packets(std::slice::from_ref(&member), produced)?;
        let ended = member.stop()?;
        ensure!(ended.count(" packets received by filter")? == COUNT);
        ensure!(ended.count(" packets dropped by kernel")? == dropped);
        ensure!(ended.capture()?.packets.len() == produced);
        Ok(())
    })
}
