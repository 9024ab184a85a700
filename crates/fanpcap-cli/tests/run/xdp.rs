//! What `fanpcap run` reports about copies that use the XDP engine. The engine counts packets in
//! maps of the group.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_testkit::member;
use serde_json::Value;

use crate::captures::{frames, on_wire, wait_until_taken};
use crate::ledger::{Traffic, copies, counted, in_traffic};
use crate::{FAR, GROUP, Running};

/// Starts `copies` tcpdump on the engine and waits until they capture.
fn tcpdumps(copies: usize) -> Result<Running> {
    let (group, count) = (GROUP.to_string(), copies.to_string());
    let options = ["-n", &count, "--group", &group, "--cpus", "none"];
    let device = format!("xdp:{FAR}");
    let command = [
        "tcpdump", "-n", "-Z", "root", "-i", &device, "-w", "%i.pcap",
    ];
    let running = Running::start(&options, &command)?;
    running.wait_until_says("tcpdump: listening", copies)?;
    running.wait_until_says(&format!("on {FAR}: {copies} copies"), 1)?;
    // Members get their shares when they first read their handles, and the ledger reads the
    // counters five times a second. After this time, both have happened.
    thread::sleep(Duration::from_millis(600));
    Ok(running)
}

fn of(summary: &Value, name: &str) -> u64 {
    summary["total"][name].as_u64().unwrap_or(u64::MAX)
}

/// When the last member ends, the kernel frees the group's maps with the counters. So the command
/// must take the number of offered packets from the device's counter.
#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn what_copies_on_xdp_leave_that_are_killed_all_at_once_is_told_to_the_packet() {
    on_wire(|injector| {
        let running = tcpdumps(3)?;
        injector.send_all(&frames(300)?)?;
        wait_until_taken(300)?;
        let copies = [running.copy(0)?, running.copy(1)?, running.copy(2)?];
        for pid in copies {
            member::signal(pid, "STOP")?;
        }
        injector.send_all(&frames(200)?)?;
        for pid in copies {
            member::signal(pid, "KILL")?;
        }
        let ended = running.wait()?;
        let summary = ended.summary();
        let of = |name: &str| of(&summary, name);
        ensure!(!ended.said().contains("packet sockets"), "{}", ended.said());
        ensure!(of("received") == 500 && of("taken") == 300, "{summary:#}");
        ensure!(of("unread") + of("inherited") == 200, "{summary:#}");
        ensure!(of("uncounted_at_most") == 0, "{summary:#}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn copies_on_xdp_that_are_told_to_end_have_lost_nothing() {
    on_wire(|_| {
        let running = tcpdumps(4)?;
        let before = counted()?;
        let traffic = Traffic::start("50kpps")?;
        thread::sleep(Duration::from_secs(3));
        traffic.end()?;
        let device = counted()? - before;
        running.signal("TERM")?;
        let ended = running.wait()?;
        let summary = ended.summary();
        ensure!(device > 20_000, "{device}");
        let of = |name: &str| of(&summary, name);
        ensure!(of("received") == device, "{device}: {summary:#}");
        ensure!(of("uncounted_at_most") == 0, "{summary:#}");
        ensure!(
            !ended.said().contains("are in no figure"),
            "{}",
            ended.said()
        );
        Ok(())
    })
    .unwrap();
}

/// The killed copy was the group's only member. The restarted copy is in no group until it has
/// created the group again. Packets that come in this time must be reported as packets that came
/// without a copy, or be within the bound.
#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn what_comes_while_a_copy_on_xdp_joins_slowly_is_within_the_bound() {
    let line = "echo >>starts; if [ $(wc -l <starts) = 2 ]; then export LD_PRELOAD=SLOWLY; fi; \
                export PCAP_DRIVER=xdp; exec TCPDUMP";
    let options = ["-n", "1", "--restart", "--fanout", "flow"];
    let row = in_traffic(&options, line, |running| {
        member::signal(copies(running)?[0], "KILL")?;
        running.wait_until_says("tcpdump: listening", 2)?;
        ensure!(!running.said().contains("packet sockets"), "fell back");
        member::wait_for_members(GROUP, 1)
    });
    assert!(!row.contains("WRONG"), "{row}");
}

/// The command reads the copies' pages from time to time, and looks more often whether a copy has
/// joined, here after each line of the copy. A page from before the join does not show the engine
/// yet.
#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn the_mode_of_copies_that_say_much_as_they_join_has_the_engine() {
    for _ in 0..3 {
        on_wire(|_| {
            let group = GROUP.to_string();
            let options = ["-n", "1", "--group", &group, "--cpus", "none"];
            let line = format!(
                "while kill -0 $$ 2>/dev/null; do echo; done & \
                 exec tcpdump -n -Z root -i xdp:{FAR} -w /dev/null"
            );
            let running = Running::start(&options, &["sh", "-c", &line])?;
            running.wait_until_says(&format!("on {FAR}: 1 copy"), 1)?;
            running.signal("TERM")?;
            let ended = running.wait()?;
            let mode = &ended.summary()["mode"];
            ensure!(mode == "flow on xdp", "{mode}");
            Ok(())
        })
        .unwrap();
    }
}
