//! Several devices in one handle: `f1^f2`.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::{Program, veth};

use crate::two_wires::{Wires, on_two_wires};

const FRAMES: u8 = 200;

/// Runs a program that captures, and sends frames. `wire` returns, for a frame's number, the wire
/// on which the frame is sent.
fn capture(wires: &Wires, program: Program, wire: impl Fn(u8) -> u8) -> Result<Vec<String>> {
    let member = program.start(&wires.scratch)?;
    for number in 0..FRAMES {
        wires.send(wire(number), number)?;
        thread::sleep(Duration::from_micros(300));
    }
    let ended = member.wait()?;
    ensure!(ended.status.success(), "{}", ended.said);
    Ok(ended.said.lines().map(str::to_owned).collect())
}

/// Checks the lines of a program that gets all frames in the order of sending.
fn ensure_in_order(lines: &[String], wire: impl Fn(u8) -> u8) -> Result<()> {
    let packets = lines.iter().filter(|line| line.starts_with("packet "));
    let packets: Vec<&str> = packets.map(String::as_str).collect();
    let sent = (0..FRAMES).map(|number| format!("packet {} {number}", wire(number)));
    let sent: Vec<String> = sent.collect();
    ensure!(packets == sent, "captured {packets:?}");
    let last = lines.last().context("a last line")?;
    let all = format!("delivered {FRAMES} received {FRAMES} dropped 0 unordered 0");
    ensure!(*last == all, "{last}");
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn packets_of_two_devices_come_in_the_order_of_time() -> Result<()> {
    on_two_wires(|wires| {
        let alternating = |number: u8| number % 2;
        // The wires take turns for 50 frames each, so one of them is always silent.
        let bursts = |number: u8| (number / 50) % 2;
        let count = FRAMES.to_string();
        for mode in ["plain", "immediate", "select", "new"] {
            for wire in [&alternating as &dyn Fn(u8) -> u8, &bursts] {
                let program = wires.program("several", &["f1^f2", mode, &count])?;
                let lines = capture(wires, program, wire).context(mode)?;
                ensure_in_order(&lines, wire).context(mode)?;
            }
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_filter_holds_on_each_device() -> Result<()> {
    on_two_wires(|wires| {
        let program = wires.program("several", &["f1^f2", "plain", "100", "ether[11] >= 100"])?;
        let lines = capture(wires, program, |number| number % 2)?;
        ensure!(lines.iter().any(|line| line == "packet 0 100"), "{lines:?}");
        ensure!(!lines.iter().any(|line| line == "packet 1 99"), "{lines:?}");
        let last = lines.last().context("a last line")?;
        ensure!(
            *last == "delivered 100 received 100 dropped 0 unordered 0",
            "{last}"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn each_device_has_its_own_group() -> Result<()> {
    on_two_wires(|wires| {
        let program = || -> Result<Program> {
            let program = wires.program("several", &["f1^f2", "plain", "100"])?;
            let program = program.set("PCAP_GROUP_f1", "11");
            Ok(program.set("PCAP_DEF_GROUP", "42").set("PCAP_FANOUT", "lb"))
        };
        let other = program()?.start(&wires.scratch)?;
        let lines = capture(wires, program()?, |number| number % 2)?;
        ensure!(lines[0] == "group 11", "{lines:?}");
        let ended = other.wait()?;
        let others = ended
            .said
            .lines()
            .filter(|line| line.starts_with("packet "));
        let own = lines.iter().filter(|line| line.starts_with("packet "));
        let mut all: Vec<&str> = others.chain(own.map(String::as_str)).collect();
        all.sort_unstable();
        all.dedup();
        ensure!(all.len() == usize::from(FRAMES), "{} frames", all.len());
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_can_not_be_is_said() -> Result<()> {
    on_two_wires(|wires| {
        let said = |arguments: &[&str], group: &str| -> Result<String> {
            let program = wires
                .program("several", arguments)?
                .set("PCAP_GROUP", group)
                .set("PCAP_FANOUT", if group.is_empty() { "" } else { "lb" });
            let ended = program.run(&wires.scratch)?;
            ensure!(!ended.status.success(), "{}", ended.said);
            Ok(ended.said)
        };
        let text = said(&["f1^gone", "plain", "1"], "")?;
        ensure!(text.contains("gone: No such device"), "{text}");
        let text = said(&["f1^f2", "plain", "1"], "5")?;
        ensure!(
            text.contains("use mode flow for several, or give f2 another number"),
            "{text}"
        );
        // The failed activation must leave no socket behind. The socket on f1 would take a share of
        // group 5 that nobody reads.
        ensure!(text.contains("listening 0\n"), "{text}");
        let text = said(&["f1^f2", "number", "1"], "")?;
        ensure!(text.contains("PCAP_FANOUT_NEW"), "{text}");
        let text = said(&["f1^any", "plain", "1"], "")?;
        ensure!(text.contains("several devices in one handle"), "{text}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_that_goes_ends_the_read() -> Result<()> {
    on_two_wires(|wires| {
        let mut member = wires
            .program("several", &["f1^f2", "plain", "10"])?
            .start(&wires.scratch)?;
        wires.send(0, 1)?;
        // First wait for the packet: packets that the kernel has not passed on yet are lost when
        // the read fails.
        member.wait_until_says("packet 0 1")?;
        veth::ip("link delete n2")?;
        let ended = member.wait()?;
        ensure!(ended.said.contains("packet 0 1"), "{}", ended.said);
        ensure!(
            ended.said.contains("The interface disappeared"),
            "{}",
            ended.said
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_that_was_down_is_read_again() -> Result<()> {
    on_two_wires(|wires| {
        let mut member = wires
            .program("several", &["f1^f2", "plain", "250"])?
            .start(&wires.scratch)?;
        wires.send(1, 1)?;
        member.wait_until_says("packet 1 1\n")?;
        veth::ip("link set f2 down")?;
        thread::sleep(Duration::from_millis(50));
        wires.send(0, 2)?;
        member.wait_until_says("packet 0 2\n")?;
        veth::ip("link set f2 up")?;
        veth::await_up("n2")?;
        wires.send(1, 3)?;
        wires.send(0, 4)?;
        member.wait_until_says("packet 1 3\npacket 0 4\n")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn packets_beside_a_device_that_went_come_in_order_or_not_at_all() -> Result<()> {
    on_two_wires(|wires| {
        let mut member = wires.program("gone", &[])?.start(&wires.scratch)?;
        for number in [1, 2] {
            wires.send(number - 1, number)?;
            member.wait_until_says(&format!("packet {number}\n"))?;
        }
        veth::ip("link delete n2")?;
        member.wait_until_says("error: The interface disappeared\n")?;
        for number in 3..=9 {
            wires.send(0, number)?;
        }
        let ended = member.wait()?;
        ensure!(ended.said.ends_with("end\n"), "{}", ended.said);
        let packets = ended
            .said
            .lines()
            .filter_map(|line| line.strip_prefix("packet "));
        let packets: Vec<u8> = packets.map(str::parse).collect::<Result<_, _>>()?;
        let all = (1..=9).take(packets.len()).eq(packets.iter().copied());
        ensure!(all, "{}", ended.said);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_stranger_in_the_second_devices_group_is_told() -> Result<()> {
    on_two_wires(|wires| {
        let stranger = wires.program("member", &["f2", "0", "4", "lb"])?;
        let stranger = stranger.start(&wires.scratch)?;
        let program = wires.program("renamed", &["f1^f2", "reader"])?;
        let program = program.set("PCAP_GROUP_f1", "3").set("PCAP_GROUP_f2", "4");
        let member = program.set("PCAP_FANOUT", "lb").start(&wires.scratch)?;
        let said = member.said()?;
        let warned = said.contains("warning 1: ") && said.contains(&stranger.pid().to_string());
        ensure!(warned, "no warning in:\n{said}");
        Ok(())
    })
}
