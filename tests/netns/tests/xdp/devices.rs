//! Handles on two devices, both on the XDP engine.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use fanpcap_netns::remains::leaves_nothing;
use fanpcap_netns::wait_for_shares;
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{
    Capture, Direction, Injector, Member, Program, Scratch, Veth, capture, library, member, netns,
};

/// Two wires. Applications capture at their far ends, `f1` and `f2`.
struct Wires {
    scratch: Scratch,
    near: [Injector; 2],
}

fn on_two_wires(test: impl FnOnce(&Wires) -> Result<()> + Send) -> Result<()> {
    netns::within_new(|| {
        Veth::new("n1", "f1", 1)?;
        Veth::new("n2", "f2", 1)?;
        let wires = Wires {
            scratch: Scratch::new()?,
            near: [Injector::open("n1")?, Injector::open("n2")?],
        };
        leaves_nothing(|| test(&wires))
    })
}

impl Wires {
    fn start(&self, number: usize, group: &[(&str, &str)]) -> Result<Member> {
        let file = self.scratch.file(&format!("{number}.pcap"));
        let mut program = Program::tcpdump("f1^f2", file)?.set("PCAP_DRIVER", "xdp");
        for (name, value) in group {
            program = program.set(name, value);
        }
        let member = program.start(&self.scratch)?;
        let said = member.said()?;
        ensure!(!said.contains("packet sockets"), "{said}");
        Ok(member)
    }

    /// Sends requests on the first wire and replies on the second, as a tap with two legs does.
    fn send(&self, frames: &[Frame]) -> Result<()> {
        for frame in frames {
            let per_device = usize::from(frame.direction == Direction::Reply);
            self.near[per_device].send(&frame.bytes)?;
        }
        Ok(())
    }
}

fn frames() -> Result<Vec<Frame>> {
    traffic::frames(1, &traffic::flows(1, 30), 0..2000)
}

/// Waits for all frames, stops the members, and checks that each frame was captured once.
fn finish(members: Vec<Member>, frames: &[Frame]) -> Result<Vec<Capture>> {
    member::wait_for_packets(&members, frames.len())?;
    let stopped = members.into_iter().map(|it| it.stop()?.capture());
    let captures: Vec<Capture> = stopped.collect::<Result<_>>()?;
    let seen = capture::sequences(&captures);
    let expected: BTreeMap<u64, usize> = frames.iter().map(|it| (it.sequence, 1)).collect();
    ensure!(
        seen == expected,
        "{} of {} frames",
        seen.len(),
        frames.len()
    );
    Ok(captures)
}

#[test]
#[ignore = "needs root: run by make test"]
fn one_handle_has_the_packets_of_both() -> Result<()> {
    on_two_wires(|wires| {
        let alone = wires.start(0, &[])?;
        let frames = frames()?;
        wires.send(&frames)?;
        finish(vec![alone], &frames).map(drop)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn one_group_has_both_directions_of_a_flow_at_one_member() -> Result<()> {
    on_two_wires(|wires| {
        let group = [("PCAP_GROUP", "7"), ("PCAP_FANOUT", "flow")];
        let members = (0..3).map(|number| wires.start(number, &group));
        let members = members.collect::<Result<Vec<_>>>()?;
        wait_for_shares()?;
        let frames = frames()?;
        wires.send(&frames)?;
        let captures = finish(members, &frames)?;
        ensure!(
            capture::split_flows(&captures).is_empty(),
            "flows are split"
        );
        ensure!(captures.iter().all(|it| it.packets.len() > 200));
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn an_application_that_selects_is_woken_and_does_not_wait() -> Result<()> {
    on_two_wires(|wires| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/merged_select.c");
        let program = wires.scratch.file("merged_select");
        library::compile_c(&source, &program)?;
        for how in ["plain", "immediate"] {
            let program = Program::new(&program, "")?.args(["blocking", how]);
            let ended = program.set("PCAP_DRIVER", "xdp").run(&wires.scratch)?;
            let expected = "7 of 7 packets, waited no\n";
            ensure!(ended.said == expected, "{how}: {}", ended.said);
        }
        Ok(())
    })
}
