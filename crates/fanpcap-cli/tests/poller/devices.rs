//! Two devices of one poller, as a tap has them: the requests come by one device, and the replies
//! by the other one.

use anyhow::{Context, Result, ensure};
use fanpcap_poll::{Asking, place};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::capture::{self, Capture};
use fanpcap_testkit::traffic::{self, Direction, Frame};
use fanpcap_testkit::{Injector, Member, Program, Scratch, Veth};

use crate::running::{Poller, within};

/// The devices of each wire: frames that are sent on the first arrive at the second.
const WIRES: [[&str; 2]; 2] = [["fppn1", "fppf1"], ["fppn2", "fppf2"]];

struct Tap {
    scratch: Scratch,
    injectors: [Injector; 2],
}

impl Tap {
    fn new() -> Result<Self> {
        for [near, far] in WIRES {
            Veth::new(near, far, 1)?;
        }
        let [one, other] = WIRES.map(|[near, _]| Injector::open(near));
        Ok(Self {
            scratch: Scratch::new()?,
            injectors: [one?, other?],
        })
    }

    /// tcpdump in group 5, with one handle on both devices.
    fn tcpdump(&self, copy: &str) -> Result<Program> {
        let [[_, one], [_, other]] = WIRES;
        let file = self.scratch.file(&format!("{copy}.pcap"));
        let program = Program::tcpdump(&format!("packet:{one}^{other}"), file)?;
        Ok(program.group(5, "flow"))
    }

    fn send(&self, frames: &[Frame]) -> Result<()> {
        for frame in frames {
            let by = usize::from(frame.direction == Direction::Reply);
            self.injectors[by].send(&frame.bytes)?;
        }
        Ok(())
    }
}

/// Waits until so many members have the same share on both devices.
fn await_shares(members: usize) -> Result<()> {
    for [_, device] in WIRES {
        await_for("shares", LIMIT, || {
            let found = place::open("packet", device)?;
            let mut asking = Asking::connect(&found.directory, &found.name, LIMIT)?;
            let groups = asking.groups()?;
            let group = groups.first().context("no group")?;
            let shares = group.slots.iter().map(|it| usize::from(it.buckets));
            let shares = shares.filter(|it| *it >= 4096 / members);
            Ok((shares.count() == members).then_some(()))
        })?;
    }
    Ok(())
}

fn await_captured(members: &[&Member], count: usize) -> Result<()> {
    await_for("the packets", LIMIT, || {
        let captured: usize = members.iter().map(|it| it.captured()).sum();
        Ok((captured >= count).then_some(()))
    })
}

fn frames(from: u64, count: u64) -> Result<Vec<Frame>> {
    traffic::frames(from, &traffic::flows(3, 100), from..from + count)
}

fn ensure_whole(captures: &[Capture], count: usize) -> Result<()> {
    let seen = capture::sequences(captures);
    ensure!(
        seen.len() == count && seen.values().all(|it| *it == 1),
        "{}",
        seen.len()
    );
    let split = capture::split_flows(captures);
    ensure!(split.is_empty(), "{} flows at several members", split.len());
    Ok(())
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn one_member_gets_both_directions_of_a_flow_that_come_by_two_devices() {
    within(|| {
        let tap = Tap::new()?;
        let [[_, one], [_, other]] = WIRES;
        let poller = Poller::start(&format!("packet:{one} packet:{other}"), 2)?;
        let first = tap.tcpdump("first")?.start(&tap.scratch)?;
        let second = tap.tcpdump("second")?.start(&tap.scratch)?;
        await_shares(2)?;
        tap.send(&frames(0, 4000)?)?;
        await_captured(&[&first, &second], 4000)?;
        let captures = [first.stop()?.capture()?, second.stop()?.capture()?];
        ensure!(
            captures.iter().all(|it| it.packets.len() > 500),
            "each has a part"
        );
        ensure_whole(&captures, 4000)?;
        poller.end()?;
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn the_flows_of_a_killed_member_go_to_one_member_each_and_no_other_flow_moves() {
    within(|| {
        let tap = Tap::new()?;
        let [[_, one], [_, other]] = WIRES;
        let _poller = Poller::start(&format!("packet:{one} packet:{other}"), 2)?;
        let start = |copy: &str| tap.tcpdump(copy)?.start(&tap.scratch);
        let [first, second, killed] = ["first", "second", "killed"].map(start);
        let (first, second, killed) = (first?, second?, killed?);
        await_shares(3)?;
        let before = frames(0, 3000)?;
        tap.send(&before)?;
        await_captured(&[&first, &second, &killed], 3000)?;
        let of_killed = killed.captured();
        killed.signal("KILL")?;
        await_shares(2)?;
        let after = frames(3000, 3000)?;
        tap.send(&after)?;
        await_captured(&[&first, &second], 6000 - of_killed)?;
        let captures = [first.stop()?.capture()?, second.stop()?.capture()?];
        // A flow of one of these two stays there, and one of the killed one's comes to one of them.
        ensure_whole(&captures, 6000 - of_killed)
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_handle_on_devices_of_two_pollers_is_told_to_take_one() {
    within(|| {
        let tap = Tap::new()?;
        let start = |[_, far]: [&str; 2]| Poller::start(&format!("packet:{far}"), 1);
        let [one, other] = WIRES.map(start);
        let _pollers = (one?, other?);
        let ended = tap.tcpdump("refused")?.run(&tap.scratch)?;
        ensure!(!ended.status.success(), "{}", ended.said);
        ensure!(
            ended.said.contains("have different pollers"),
            "{}",
            ended.said
        );
        Ok(())
    })
    .unwrap();
}
