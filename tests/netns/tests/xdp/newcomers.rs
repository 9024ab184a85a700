//! Newcomers that join at the same time, as on a machine without spare CPU time. All of them must
//! be on the engine, whichever newcomer claims the device first.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fanpcap_linux::process::stat::Stat;
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::{DEVICE, Wire, ensure_each_once, finish, wait_for_shares};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::veth::has_xdp;
use fanpcap_testkit::{Member, Program, member, traffic};

use crate::scene::{preload, start_as, tcpdump};

const GROUP: u16 = 7;

/// A time that is longer than newcomers wait for the kernel to free the objects of an ended group.
const STALLED: Duration = Duration::from_secs(3);

fn newcomer(wire: &Wire) -> Result<Program> {
    Ok(tcpdump(wire)?.group(GROUP, "flow"))
}

/// Starts a newcomer that claims the device and then waits. It continues when the returned file is
/// removed.
fn stalled(wire: &Wire) -> Result<(Member, PathBuf)> {
    let stalls = wire.scratch.file("stalls");
    let program = newcomer(wire)?.set("LD_PRELOAD", preload(wire, "stalls")?);
    let member = program.set("STALLS", &stalls).spawn(&wire.scratch)?;
    await_for("a newcomer that stalls", LIMIT, || {
        Ok(stalls.exists().then_some(()))
    })?;
    ensure!(has_xdp(DEVICE)?, "the newcomer has not claimed the device");
    Ok((member, stalls))
}

/// Starts other newcomers, which must wait for the stalled newcomer. The function waits so long
/// that a newcomer that wrongly did not wait would have chosen packet sockets. Then it checks that
/// none of them has printed anything.
fn others(wire: &Wire, stalls: &Path) -> Result<Vec<Member>> {
    let start = |_| newcomer(wire)?.spawn(&wire.scratch);
    let others = (0..2).map(start).collect::<Result<Vec<_>>>()?;
    thread::sleep(STALLED);
    for other in &others {
        let said = other.said()?;
        ensure!(
            said.is_empty() && stalls.exists(),
            "a newcomer has not waited: {said}"
        );
    }
    Ok(others)
}

/// Checks that all newcomers join on the engine, and that each packet is captured once.
fn ensure_all_share(wire: &Wire, mut members: Vec<Member>) -> Result<()> {
    for member in &mut members {
        member.wait_until_says("listening on")?;
        let said = member.said()?;
        ensure!(!said.contains("packet sockets"), "{said}");
    }
    member::wait_for_members(GROUP, members.len())?;
    wait_for_shares()?;
    let frames = traffic::frames(1, &traffic::flows(1, 60), 0..600)?;
    wire.send_as_tap(&frames)?;
    ensure_each_once(&finish(members, frames.len())?, &frames)
}

#[test]
#[ignore = "needs root: run by make test"]
fn newcomers_wait_for_one_that_has_the_device_and_is_in_no_group_yet() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let (first, stalls) = stalled(wire)?;
        let mut members = others(wire, &stalls)?;
        std::fs::remove_file(&stalls)?;
        members.push(first);
        ensure_all_share(wire, members)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn newcomers_take_the_device_of_one_that_dies_before_it_joins() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let (first, stalls) = stalled(wire)?;
        let members = others(wire, &stalls)?;
        first.signal("KILL")?;
        first.wait()?;
        ensure_all_share(wire, members)
    })
}

/// Starts a newcomer that stops itself before a command of bpf(2).
fn stopped_before(wire: &Wire, command: u32) -> Result<Member> {
    let program = newcomer(wire)?.set("LD_PRELOAD", preload(wire, "stops")?);
    let member = program.set("STOPS", command.to_string());
    let member = member.spawn(&wire.scratch)?;
    await_for("a newcomer that is stopped", LIMIT, || {
        Ok(Stat::of(member.pid()).filter(Stat::is_stopped))
    })?;
    Ok(member)
}

/// Checks that other newcomers join at once, and that the stopped newcomer joins when it continues.
fn ensure_hinders_nobody(wire: &Wire, mut others: Vec<Member>, stopped: Member) -> Result<()> {
    for _ in 0..2 {
        let begin = Instant::now();
        others.push(start_as(wire, newcomer(wire)?)?);
        let took = begin.elapsed();
        ensure!(took < WAITED, "it took {took:?}");
    }
    stopped.signal("CONT")?;
    others.push(stopped);
    ensure_all_share(wire, others)
}

#[test]
#[ignore = "needs root: run by make test"]
fn one_that_is_stopped_as_it_takes_over_the_device_hinders_nobody() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let stopped = stopped_before(wire, BPF_LINK_CREATE)?;
        ensure_hinders_nobody(wire, Vec::new(), stopped)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn one_that_is_stopped_as_it_directs_packets_to_its_rings_hinders_nobody() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let first = start_as(wire, newcomer(wire)?)?;
        let stopped = stopped_before(wire, BPF_MAP_UPDATE_ELEM)?;
        ensure_hinders_nobody(wire, vec![first], stopped)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn one_that_dies_as_it_directs_packets_to_its_rings_leaves_no_trace() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let first = start_as(wire, newcomer(wire)?)?;
        let stopped = stopped_before(wire, BPF_MAP_UPDATE_ELEM)?;
        let other = start_as(wire, newcomer(wire)?)?;
        stopped.signal("KILL")?;
        stopped.wait()?;
        let next = start_as(wire, newcomer(wire)?)?;
        ensure_all_share(wire, vec![first, other, next])
    })
}

/// A time that is shorter than newcomers wait for a lock that a stopped process holds.
const WAITED: Duration = Duration::from_millis(900);

// linux/bpf.h, enum bpf_cmd.
const BPF_MAP_UPDATE_ELEM: u32 = 2;
const BPF_LINK_CREATE: u32 = 28;
