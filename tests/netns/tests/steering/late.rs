//! Only the member that last attached the group's BPF program reports late fragments.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{Wire, on_wire};
use fanpcap_testkit::member;

use crate::frame::{Frame, fragments, udp};

const GROUP: u16 = 7;

/// Two programs that neither drop nor count packets.
const FIRST: &str = "main = steer_flow";
const SECOND: &str = "main = if is_udp then steer_flow else steer_p2p";

/// Sends a datagram whose later fragment comes first.
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

/// The number of maps that a process has open, without the table that all members share.
fn maps(pid: u32) -> Result<usize> {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo"))?.flatten();
    let infos = infos.filter_map(|info| fs::read_to_string(info.path()).ok());
    let id = |info: &str| {
        info.lines()
            .find_map(|line| Some(line.strip_prefix("map_id:")?.to_owned()))
    };
    let maps: BTreeSet<String> = infos.filter_map(|info| id(&info)).collect();
    maps.len().checked_sub(1).context("no table")
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
        // The new program's counter continues from the old program's value.
        other.expect("late 0", "0: late 2")?;
        one.expect("late 0", "0: late 2")?;
        let has = maps(one.pid())?;
        ensure!(has == 0, "{has} of {had} maps are still open");
        // The member that attached the last program ends. Only this member could read the counter.
        drop(other);
        one.expect("count 0", "0 has 4 packets")?;
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
        ensure!(has == had, "{has} maps are open, at first {had}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn of_two_that_come_first_at_once_one_alone_tells() -> Result<()> {
    on_wire(1, |wire| {
        let slowly = format!("LD_PRELOAD={}", slow_to_set(wire)?);
        let start = || Dialog::behind(wire, GROUP, &["env", &slowly]);
        let mut both = [start()?, start()?];
        thread::scope(|scope| {
            let open = |one| scope.spawn(move || Dialog::open_beside(one, FIRST));
            let opened: Vec<_> = both.iter_mut().map(open).collect();
            let mut joined = opened.into_iter().map(|one| one.join());
            joined.try_for_each(|one| one.map_err(|_| anyhow!("a panic"))?)
        })?;
        let [one, other] = [maps(both[0].pid())?, maps(both[1].pid())?];
        ensure!((one > 0) != (other > 0), "{one} and {other} maps");
        send_late(wire, 1)?;
        // First ask the member that attached the program, because it then publishes the counter for
        // the other member.
        let setter = usize::from(other > 0);
        both[setter].expect("late 0", "0: late 1")?;
        both[1 - setter].expect("late 0", "0: late 1")
    })
}

/// Compiles `c/slow_to_set.c`, a library for LD_PRELOAD. It delays a process before the process
/// gives a group a steering program.
pub(crate) fn slow_to_set(wire: &Wire) -> Result<String> {
    const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/c/slow_to_set.c");
    let object = wire.scratch.file("slow_to_set.so");
    let object = object.to_str().context("a path in UTF-8")?;
    let mut compiler = Command::new("cc");
    let compiled = compiler.args(["-shared", "-fPIC", "-o", object, SOURCE]);
    ensure!(compiled.status()?.success(), "cc failed");
    Ok(object.to_owned())
}
