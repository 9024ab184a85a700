//! Late fragments are told by the member that gave the group its program last, and by no other.

use std::fs;

use anyhow::{Result, ensure};
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{Wire, on_wire};
use fanpcap_testkit::member;

use crate::frame::{Frame, fragments, udp};

const GROUP: u16 = 7;

/// Two that drop and count nothing.
const FIRST: &str = "main = steer_flow";
const SECOND: &str = "main = if is_udp then steer_flow else steer_p2p";

/// A datagram whose later fragment comes first.
fn send_late(wire: &Wire, identification: u16) -> Result<()> {
    let ends = ([10, 0, 0, 1].into(), [192, 168, 0, 13].into());
    let parts = fragments(ends, identification, &udp((5000, 6000), &[7; 1000]), 512);
    let frames = parts
        .iter()
        .rev()
        .map(|part| Frame::arriving(part.framed()));
    let frames: Vec<Frame> = frames.collect();
    wire.send_bytes(
        frames
            .iter()
            .map(|frame| (frame.direction, &frame.bytes[..])),
    )
}

/// The maps that a process has open.
fn maps(pid: u32) -> Result<usize> {
    let links = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    let links = links.filter_map(|link| fs::read_link(link.path()).ok());
    let maps = links.filter(|link| link.to_str() == Some("anon_inode:bpf-map"));
    Ok(maps.count())
}

#[test]
#[ignore = "needs root: run by make test"]
fn late_fragments_are_told_by_who_set_the_program_last() -> Result<()> {
    on_wire(1, |wire| {
        let mut one = Dialog::start(wire, GROUP)?;
        let mut other = Dialog::start(wire, GROUP)?;
        one.expect(&format!("open {FIRST}"), "opened 0")?;
        other.expect(&format!("open {FIRST}"), "opened 0")?;
        let had = maps(one.pid())?;
        ensure!(had > 0 && maps(other.pid())? == 0, "{had} maps");
        send_late(wire, 1)?;
        one.expect("late 0", "0: late 1")?;
        other.expect(&format!("fanout 0 {SECOND}"), "done")?;
        send_late(wire, 2)?;
        // It goes on from there.
        other.expect("late 0", "0: late 2")?;
        one.expect("late 0", "0: late 2")?;
        let has = maps(one.pid())?;
        ensure!(has == 0, "{has} maps are left of {had}");
        // Who set the program last is gone.
        drop(other);
        member::wait_for_members(GROUP, 1)?;
        send_late(wire, 3)?;
        one.expect("late 0", "0: late unknown")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_processs_other_handle_lets_go_of_the_old_program() -> Result<()> {
    on_wire(1, |wire| {
        let mut own = Dialog::start(wire, GROUP)?;
        own.expect(&format!("open {FIRST}"), "opened 0")?;
        own.expect(&format!("open {FIRST}"), "opened 1")?;
        let had = maps(own.pid())?;
        send_late(wire, 1)?;
        own.expect(&format!("fanout 1 {SECOND}"), "done")?;
        send_late(wire, 2)?;
        own.expect("late 0", "0: late 2")?;
        let has = maps(own.pid())?;
        ensure!(has == had, "{has} maps, {had} before");
        own.expect(&format!("fanout 0 {FIRST}"), "done")?;
        send_late(wire, 3)?;
        own.expect("late 1", "1: late 3")?;
        let has = maps(own.pid())?;
        ensure!(has == had, "{has} maps, {had} at first");
        Ok(())
    })
}
