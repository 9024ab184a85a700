//! Groups on the XDP engine: members share the packets, and each of several groups gets all
//! packets.

use anyhow::{Result, ensure};
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::{DEVICE, Wire, ensure_each_once, ensure_flows_whole, finish, wait_for_shares};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Member, Program, member};

use crate::scene::{start, start_as, tcpdump};

/// Frames of many flows.
fn frames(count: u64) -> Result<Vec<Frame>> {
    traffic::frames(1, &traffic::flows(1, 60), 0..count)
}

/// Starts `count` members of a group and waits until each has its share. If `mode` is `None`, the
/// members take the default mode.
fn group(wire: &Wire, number: u16, mode: Option<&str>, count: usize) -> Result<Vec<Member>> {
    let start = |_| {
        let program = tcpdump(wire)?.set("PCAP_GROUP", number.to_string());
        let program = match mode {
            Some(mode) => program.set("PCAP_FANOUT", mode),
            None => program,
        };
        start_as(wire, program)
    };
    let members = (0..count).map(start).collect::<Result<_>>()?;
    member::wait_for_members(number, count)?;
    wait_for_shares()?;
    Ok(members)
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_share_the_packets_by_flow_or_by_the_programs_of_the_kernels_modes() -> Result<()> {
    for mode in [None, Some("hash"), Some("lb"), Some("rnd"), Some("cpu")] {
        on_wire_that_ends_clean(2, |wire| {
            let members = group(wire, 7, mode, 3)?;
            let frames = frames(3000)?;
            wire.send_as_tap(&frames)?;
            let captures = finish(members, frames.len())?;
            ensure_each_once(&captures, &frames)?;
            if [None, Some("hash")].contains(&mode) {
                ensure_flows_whole(&captures)?;
            }
            if mode != Some("cpu") {
                ensure!(captures.iter().all(|it| it.packets.len() > 300), "{mode:?}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn each_group_and_each_handle_without_one_has_all_packets() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let alone = start(wire)?;
        let first = group(wire, 7, None, 2)?;
        let second = group(wire, 8, Some("main = tcp >-> steer_flow"), 2)?;
        let frames = frames(2000)?;
        wire.send_as_tap(&frames)?;
        let is_tcp = |frame: &&Frame| frame.flow.transport == fanpcap_testkit::Transport::Tcp;
        let tcp: Vec<Frame> = frames.iter().filter(is_tcp).cloned().collect();
        ensure_each_once(&finish(second, tcp.len())?, &tcp)?;
        // The other groups continue when a group has ended.
        wire.send_as_tap(&frames)?;
        let captures = finish(first, 2 * frames.len())?;
        ensure_flows_whole(&captures)?;
        finish(vec![alone], 2 * frames.len()).map(drop)
    })
}

/// The numbers of such handles' groups are chosen at the same time.
#[test]
#[ignore = "needs root: run by make test"]
fn handles_without_a_group_are_opened_together() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let waits = wire.compile("waits")?;
        let open = |number: u64| {
            let file = wire.scratch.file(&format!("{number}.pcap"));
            let program = Program::new(&waits, "ready")?.arg(DEVICE).arg(file);
            let program = program.arg("blind").set("PCAP_DRIVER", "xdp");
            program.spawn(&wire.scratch)
        };
        let mut members = (0..15).map(open).collect::<Result<Vec<_>>>()?;
        for member in &mut members {
            member.wait_until_says("ready")?;
        }
        members.into_iter().try_for_each(|it| it.stop().map(drop))
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn others_go_on_when_the_one_is_killed_that_came_first() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let mut members = group(wire, 7, None, 3)?;
        let alone = start(wire)?;
        let frames = frames(3000)?;
        let (before, after) = frames.split_at(1000);
        wire.send_as_tap(before)?;
        member::wait_for_packets(&members, before.len())?;
        let killed = members.remove(0);
        killed.signal("KILL")?;
        let mut captures = vec![killed.capture_so_far()];
        killed.wait()?;
        // Packets for the dead member go to the member that takes over its ring and its share.
        wire.send_as_tap(after)?;
        let left = frames.len() - captures[0].packets.len();
        member::wait_for_packets(&members, left)?;
        for member in members {
            captures.push(member.stop()?.capture()?);
        }
        ensure_each_once(&captures, &frames)?;
        finish(vec![alone], frames.len()).map(drop)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_group_has_one_engine() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let _members = group(wire, 7, None, 1)?;
        let sockets = wire.tcpdump()?.group(7, "flow").run(&wire.scratch)?;
        let expected = "fan-out group 7 is on engine xdp, this handle on packet sockets";
        ensure!(sockets.said.contains(expected), "{}", sockets.said);
        let _others = wire.start_group(1, 8, "flow")?;
        let on_xdp = tcpdump(wire)?.group(8, "flow").run(&wire.scratch)?;
        let expected = "fan-out group 8 is on packet sockets, this handle on engine xdp";
        ensure!(on_xdp.said.contains(expected), "{}", on_xdp.said);
        Ok(())
    })
}
