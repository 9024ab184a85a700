//! The copies' members: short-lived members, many members, foreign members, and members of a
//! command that is killed.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for, within};
use fanpcap_testkit::{Capture, member};

use crate::captures::{frames, on_wire, wait_until_taken};
use crate::{FAR, GROUP, Running};

/// One copy has a handle all the time, and opens other handles that live only for a moment.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn figures_never_leave_out_handles_that_live_for_a_moment() {
    on_wire(|injector| {
        let text = format!(
            "tcpdump -n -U -Z root -i {FAR} -w %i.pcap & \
             while [ ! -s %i.pcap ]; do sleep 0.1; done; sleep 1; \
             for n in 1 2 3 4 5 6 7 8; do \
             tcpdump -n -Z root --immediate-mode -c 1 -i {FAR} -w short.$n; done; echo done >&2; wait"
        );
        let group = GROUP.to_string();
        let options = ["-n", "1", "--group", &group, "--cpus", "none", "--fanout", "lb"];
        let running = Running::start(&options, &["sh", "-c", &text, "%i.pcap"])?;
        let frames = frames(100)?;
        await_for("the short ones to end", LIMIT, || {
            injector.send_all(&frames[..10])?;
            Ok(running.said().contains("done\n").then_some(()))
        })?;
        running.signal("INT")?;
        let ended = running.wait()?;
        let summary = ended.summary();
        let written = |name: &str| Capture::count_so_far(&ended.scratch.file(name)) as u64;
        let short: u64 = (1..=8).map(|n| written(&format!("short.{n}"))).sum();
        ensure!(short == 8, "{short}");
        let taken = &summary["total"]["taken"];
        match taken.as_u64() {
            // The bound includes the packets of handles that ended before the ledger had detected
            // them.
            Some(taken) => {
                let bound = summary["total"]["uncounted_at_most"].as_u64();
                ensure!(taken + bound.unwrap_or(0) >= written("0.pcap") + short, "{summary:#}");
            }
            None => ensure!(
                ended.said().contains("was closed before its counters could be read")
                    && ended.said().contains("copy 0: at least "),
                "{}",
                ended.said()
            ),
        }
        Ok(())
    })
    .unwrap();
}

/// Only one copy runs. When it is killed, no other member reads its ring, and the kernel frees the
/// engine's counters.
#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn what_the_last_copy_on_xdp_leaves_when_it_is_killed_is_within_the_bound() {
    on_wire(|injector| {
        let (group, device) = (GROUP.to_string(), format!("xdp:{FAR}"));
        let options = ["-n", "1", "--group", &group, "--cpus", "none"];
        let command = [
            "tcpdump", "-n", "-Z", "root", "-i", &device, "-w", "%i.pcap",
        ];
        let running = Running::start(&options, &command)?;
        member::wait_for_members(GROUP, 1)?;
        running.wait_until_says("tcpdump: listening", 1)?;
        let copy = running.copy(0)?;
        member::signal(copy, "STOP")?;
        injector.send_all(&frames(200)?)?;
        member::signal(copy, "KILL")?;
        let ended = running.wait()?;
        let summary = ended.summary();
        let of = |name: &str| summary["total"][name].as_u64().unwrap_or(0);
        let told = of("received") + of("uncounted_at_most");
        ensure!(
            told >= 200 && !ended.said().contains("packet sockets"),
            "{summary:#}"
        );
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_foreign_member_of_the_group_is_told() {
    on_wire(|_| {
        let other = Running::tcpdumps(&[], "%i.pcap")?;
        let pids = [other.copy(0)?, other.copy(1)?];
        let group = GROUP.to_string();
        let own = Running::start(&["--group", &group, "--cpus", "none"], &["true"])?.wait()?;
        for pid in pids {
            let told = format!("group {GROUP} already has another member, which also gets a share of the packets: process {pid} (tcpdump)");
            ensure!(own.said().contains(&told), "{}", own.said());
        }
        other.stop()?;
        Ok(())
    })
    .unwrap();
}

/// After a member has ended, the command waits tens of milliseconds for the kernel before it reads
/// the member's last counters. The waits for many members must overlap.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn many_members_are_settled_at_once() {
    on_wire(|injector| {
        let group = GROUP.to_string();
        let options = [
            "-n", "48", "--group", &group, "--cpus", "none", "--fanout", "lb",
        ];
        let command = ["tcpdump", "-n", "-Z", "root", "-i", FAR, "-w", "%i.pcap"];
        let running = Running::start(&options, &command)?;
        member::wait_for_members(GROUP, 48)?;
        running.wait_until_says("tcpdump: listening", 48)?;
        injector.send_all(&frames(480)?)?;
        wait_until_taken(480)?;
        let all: Vec<u32> = (0..48)
            .map(|number| running.copy(number))
            .collect::<Result<_>>()?;
        for pid in &all {
            member::signal(*pid, "STOP")?;
        }
        for pid in all {
            member::signal(pid, "KILL")?;
        }
        let began = Instant::now();
        let ended = running.wait()?;
        let taken = began.elapsed();
        ensure!(taken < within(Duration::from_secs(1)), "{taken:?}");
        let total = &ended.summary()["total"];
        ensure!(
            total["received"] == 480 && total["unread"] == 0 && total["refused"] == 0,
            "{total:#}"
        );
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn copies_end_with_a_command_that_is_killed() {
    on_wire(|_| {
        let running = Running::tcpdumps(&[], "%i.pcap")?;
        let copies = [running.copy(0)?, running.copy(1)?];
        running.signal("KILL")?;
        await_for("the copies' end", LIMIT, || {
            let gone = |pid: &u32| !Path::new(&format!("/proc/{pid}/exe")).exists();
            Ok(copies.iter().all(gone).then_some(()))
        })?;
        member::wait_for_members(GROUP, 0)
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_start_that_never_joined_leaves_the_figures_known() {
    on_wire(|injector| {
        let text = format!("mkdir once && exit 4; exec tcpdump -n -U -Z root -i {FAR} -w %i.pcap");
        let group = GROUP.to_string();
        let options = ["-n", "1", "--group", &group, "--cpus", "none", "--restart"];
        let running = Running::start(&options, &["sh", "-c", &text])?;
        running.wait_until_says("tcpdump: listening", 1)?;
        injector.send_all(&frames(10)?)?;
        wait_until_taken(10)?;
        running.signal("INT")?;
        let ended = running.wait()?;
        let total = &ended.summary()["total"];
        ensure!(
            total["taken"] == 10 && total["received"] == 10 && total["refused"] == 0,
            "{total:#}"
        );
        ensure!(total["uncounted_at_most"].is_u64(), "{total:#}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_copy_that_was_a_member_for_a_while_has_joined() {
    on_wire(|injector| {
        let text =
            format!("tcpdump -n -Z root --immediate-mode -c 1 -i {FAR} -w %i.pcap; exec sleep 600");
        let group = GROUP.to_string();
        let options = [
            "-n", "1", "--group", &group, "--cpus", "none", "--merge", "all.pcap",
        ];
        let running = Running::start(&options, &["sh", "-c", &text])?;
        // Wait until tcpdump listens: a member that has just joined the group still rejects packets
        // for a while.
        running.wait_until_says("tcpdump: listening", 1)?;
        injector.send_all(&frames(10)?)?;
        member::wait_for_members(GROUP, 0)?;
        // The command checks whether a copy has joined when the copy is three seconds old.
        std::thread::sleep(Duration::from_secs(4));
        let said = running.said();
        ensure!(!said.contains("has not joined"), "{said}");
        Ok(())
    })
    .unwrap();
}
