//! Packets that copies took and that their captures lack: the command counts them, and says why
//! they are missing. The copies of tcpdump write whole buffers.

use std::fs;

use anyhow::{Result, ensure};
use fanpcap_testkit::{Capture, Injector, member};

use crate::captures::{frames, on_wire, wait_until_taken};
use crate::{Ended, FAR, GROUP, Running};

const FRAMES: u64 = 3000;

/// Starts two copies of tcpdump, which take all frames.
fn taken_by_two(injector: &Injector, options: &[&str], ring: &[&str]) -> Result<Running> {
    let group = GROUP.to_string();
    let all = ["-n", "2", "--group", &group, "--cpus", "none"];
    let tcpdump = ["tcpdump", "-n", "--immediate-mode", "-Z", "root", "-i", FAR];
    let command = [&tcpdump[..], ring, &["-w", "%i.pcap"]].concat();
    let running = Running::start(&[&all[..], options].concat(), &command)?;
    running.wait_until_says("tcpdump: listening", 2)?;
    member::wait_for_members(GROUP, 2)?;
    for (frames, sent) in frames(FRAMES)?.chunks(500).zip(1..) {
        injector.send_all(frames)?;
        wait_until_taken(sent * 500)?;
    }
    Ok(running)
}

/// Kills copy 0, and ends the other one.
fn killed(running: Running) -> Result<Ended> {
    member::signal(running.copy(0)?, "KILL")?;
    running.wait_until_says("copy 0 ended (signal: 9", 1)?;
    running.signal("INT")?;
    running.wait()
}

fn lines(ended: &Ended, text: &str) -> usize {
    let said = ended.said();
    said.lines().filter(|line| line.contains(text)).count()
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn what_a_killed_copy_had_not_written_is_counted_and_said_once() {
    for options in [&[][..], &["--merge", "all.pcapng"]] {
        on_wire(|injector| {
            let ended = killed(taken_by_two(injector, options, &[])?)?;
            let summary = ended.summary();
            let written = |name: &str| -> Result<u64> {
                // The file of the killed copy may end within a packet.
                let file = ended.scratch.file(name);
                Ok(Capture::count_so_far(&file).try_into()?)
            };
            let [first, second] = [written("0.pcap")?, written("1.pcap")?];
            let lost = FRAMES - first - second;
            ensure!(lost > 0 && first > 0, "{summary:#}");
            ensure!(summary["copies"][0]["written"] == first, "{summary:#}");
            ensure!(summary["copies"][1]["written"] == second, "{summary:#}");
            ensure!(summary["taken_not_written"] == lost, "{summary:#}");
            let said = format!(
                "fanpcap: {lost} packets that the copies took are not in their captures: copy 0 was killed, and"
            );
            ensure!(lines(&ended, &said) == 1, "{}", ended.said());
            ensure!(lines(&ended, &format!(" {lost} packets")) == 1, "{}", ended.said());
            let columns = "copy  starts  received  dropped  taken  written  ";
            ensure!(lines(&ended, columns) == 1, "{}", ended.said());
            Ok(())
        })
        .unwrap();
    }
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn copies_that_end_by_themselves_are_not_counted_without_merge() {
    on_wire(|injector| {
        let ended = taken_by_two(injector, &[], &[])?.stop()?;
        let summary = ended.summary();
        ensure!(summary["taken_not_written"].is_null(), "{summary:#}");
        ensure!(lines(&ended, "written") == 0, "{}", ended.said());
        Ok(())
    })
    .unwrap();
}

/// tcpdump begins each file anew after a megabyte of the other one.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn files_that_the_program_overwrites_are_the_reason() {
    const RING: [&str; 4] = ["-C", "1", "-W", "2"];
    let why = "tcpdump -C -W overwrites its older files";
    on_wire(|injector| {
        let running = taken_by_two(injector, &["--merge", "all.pcapng"], &RING)?;
        let more = frames(60_000)?;
        for (frames, sent) in more.chunks(500).zip(1..) {
            injector.send_all(frames)?;
            wait_until_taken(FRAMES + sent * 500)?;
        }
        let ended = running.stop()?;
        let lost = ended.summary()["taken_not_written"].clone();
        ensure!(lost.as_i64() > Some(0), "{:#}", ended.summary());
        let said =
            format!("{lost} packets that the copies took are not in their captures: {why}\n");
        ensure!(ended.said().contains(&said), "{}", ended.said());
        Ok(())
    })
    .unwrap();
    on_wire(|injector| {
        let ended = killed(taken_by_two(injector, &[], &RING)?)?;
        let said = format!("what copy 0 had taken and not written is not known: {why}\n");
        ensure!(ended.said().contains(&said), "{}", ended.said());
        ensure!(fs::exists(ended.scratch.file("0.pcap0"))?, "no ring");
        Ok(())
    })
    .unwrap();
}
