//! What `fanpcap run` reports about copies whose packets come from a poller, on both sources. The
//! poller counts all packets, so the numbers add up to those that were sent.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use fanpcap_linux::process::netns::inode;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::{Injector, member, traffic};
use serde_json::Value;

use crate::captures::on_wire;
use crate::{FAR, GROUP, Running};

/// A poller of the device [`FAR`], as a process.
struct Poller {
    child: Child,
    said: PathBuf,
}

impl Poller {
    fn start(engine: &str) -> Result<Self> {
        // A killed poller of an earlier namespace with this number may have left its name.
        let _ = fs::remove_dir_all(format!("/run/fanpcap-pollers/netns-{}", inode()?));
        let said = std::env::temp_dir().join(format!("run-poller-{}", inode()?));
        let child = Command::new(env!("CARGO_BIN_EXE_fanpcap"))
            .args(["poller", &format!("{engine}:{FAR}")])
            .stdout(Stdio::null())
            .stderr(File::create(&said)?)
            .spawn()?;
        let poller = Self { child, said };
        await_for("the poller", LIMIT, || {
            let said = fs::read_to_string(&poller.said)?;
            Ok(said.contains("serving ").then_some(()))
        })?;
        Ok(poller)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        // By SIGTERM, so that it leaves no files.
        let _ = member::signal(self.child.id(), "TERM");
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.said);
    }
}

fn on_both(test: impl Fn(&str, &Injector) -> Result<()> + Send + Sync) -> Result<()> {
    for engine in ["packet", "afxdp"] {
        on_wire(|injector| {
            let _poller = Poller::start(engine)?;
            test(engine, injector).with_context(|| engine.to_owned())
        })?;
    }
    Ok(())
}

/// Copies of tcpdump in their group, each with its share.
fn tcpdumps(engine: &str, copies: u64, options: &[&str]) -> Result<Running> {
    let (group, count) = (GROUP.to_string(), copies.to_string());
    let common = ["-n", &count, "--group", &group, "--cpus", "none"];
    let device = format!("{engine}:{FAR}");
    let command = [
        "tcpdump", "-n", "-U", "-Z", "root", "-i", &device, "-w", "%i.pcap",
    ];
    let running = Running::start(&[&common, options].concat(), &command)?;
    await_shares(engine, copies)?;
    Ok(running)
}

/// The copies' group, as `fanpcap group` shows it; `Null` if there is none.
fn group(engine: &str) -> Result<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_fanpcap"))
        .args([
            "group",
            &format!("{engine}:{FAR}"),
            &GROUP.to_string(),
            "--json",
        ])
        .output()?;
    Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
}

/// Waits until so many members share the group.
fn await_shares(engine: &str, members: u64) -> Result<()> {
    await_for("the copies' shares", LIMIT, || {
        let told = group(engine)?;
        let slots = told["slots"].as_array().cloned().unwrap_or_default();
        let have = slots.iter().filter(|it| it["buckets"].as_u64() > Some(0));
        let is_alone = slots.len() as u64 == members && have.count() as u64 == members;
        Ok(is_alone.then_some(()))
    })
}

/// Waits until so many packets have come to the group.
fn await_offered(engine: &str, count: u64) -> Result<()> {
    await_for("packets at the group", LIMIT, || {
        let told = group(engine)?;
        Ok((told["ledger"]["offered_packets_total"] == count).then_some(()))
    })
}

fn send(injector: &Injector, numbers: std::ops::Range<u64>) -> Result<()> {
    injector.send_all(&traffic::frames(7, &traffic::flows(7, 100), numbers)?)?;
    Ok(())
}

fn ensure_total(summary: &Value, expected: &[(&str, u64)]) -> Result<()> {
    for (figure, expected) in expected {
        let found = &summary["total"][figure];
        ensure!(
            found == *expected,
            "{figure} is not {expected}: {summary:#}"
        );
    }
    Ok(())
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn copies_at_a_poller_account_for_each_packet() {
    on_both(|engine, injector| {
        let running = tcpdumps(engine, 2, &[])?;
        send(injector, 0..3000)?;
        // The copies take what is in their pools before they get the signal.
        await_offered(engine, 3000)?;
        let ended = running.stop()?;
        let (summary, said) = (ended.summary(), ended.said());
        ensure_total(
            &summary,
            &[
                ("received", 3000),
                ("taken", 3000),
                ("dropped", 0),
                ("unread", 0),
                ("uncounted_at_most", 0),
            ],
        )?;
        for copy in [&summary["copies"][0], &summary["copies"][1]] {
            ensure!(copy["received"].as_u64() > Some(0), "{summary:#}");
        }
        let poller = &summary["poller"];
        ensure!(
            poller["received"] == 3000 && poller["offered"] == 3000,
            "{summary:#}"
        );
        ensure!(
            poller["dropped"] == 0 && poller["no_member"] == 0,
            "{summary:#}"
        );
        ensure!(
            summary["mode"] == format!("flow on {engine}"),
            "{summary:#}"
        );
        ensure!(summary["absent"]["times"] == 0, "{summary:#}");
        let joined = format!("in group {GROUP}, flow on {engine}, on {FAR}: 2 copies");
        ensure!(said.contains(&joined), "{said}");
        ensure!(!said.contains("sees ALL packets"), "{said}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn what_killed_copies_at_a_poller_leave_is_told_to_the_packet() {
    on_both(|engine, injector| {
        let running = tcpdumps(engine, 2, &[])?;
        send(injector, 0..1000)?;
        running.wait_for_packets(&["0.pcap", "1.pcap"], 1000)?;
        let copies = [running.copy(0)?, running.copy(1)?];
        for pid in copies {
            member::signal(pid, "STOP")?;
        }
        send(injector, 1000..1500)?;
        await_offered(engine, 1500)?;
        // The second copy reads what the first one leaves. Then nobody reads what it leaves itself.
        member::signal(copies[0], "KILL")?;
        member::signal(copies[1], "CONT")?;
        running.wait_for_packets(&["0.pcap", "1.pcap"], 1500)?;
        member::signal(copies[1], "STOP")?;
        send(injector, 1500..1800)?;
        await_offered(engine, 1800)?;
        member::signal(copies[1], "KILL")?;
        let summary = running.wait()?.summary();
        let of = |name: &str| summary["total"][name].as_u64().unwrap_or(u64::MAX);
        ensure_total(
            &summary,
            &[("received", 1800), ("dropped", 0), ("unread", 300)],
        )?;
        ensure!(of("taken") + of("inherited") == 1500, "{summary:#}");
        ensure!(of("inherited") > 0 && of("inherited") < 500, "{summary:#}");
        ensure!(summary["taken_not_written"] == 0, "{summary:#}");
        Ok(())
    })
    .unwrap();
}

/// A copy that is started again has the name of its former member, so the poller keeps the packets
/// for it.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_copy_that_is_started_again_gets_the_packets_that_came_meanwhile() {
    on_both(|engine, injector| {
        let running = tcpdumps(engine, 1, &["--restart"])?;
        send(injector, 0..500)?;
        running.wait_for_packets(&["0.pcap"], 500)?;
        member::signal(running.copy(0)?, "KILL")?;
        await_for("the end of the copy", LIMIT, || {
            let told = group(engine)?;
            Ok((told["slots"][0]["state"] != "live").then_some(()))
        })?;
        send(injector, 500..600)?;
        let captures = ["0.pcap", "0.pcap.1"];
        running.wait_for_packets(&captures, 600)?;
        send(injector, 600..1000)?;
        running.wait_for_packets(&captures, 1000)?;
        let summary = running.stop()?.summary();
        let of = |name: &str| summary["total"][name].as_u64().unwrap_or(u64::MAX);
        ensure_total(
            &summary,
            &[("received", 1000), ("unread", 0), ("uncounted_at_most", 0)],
        )?;
        ensure!(of("taken") + of("inherited") == 1000, "{summary:#}");
        ensure!(summary["absent"]["times"] == 0, "{summary:#}");
        ensure!(summary["poller"]["received"] == 1000, "{summary:#}");
        ensure!(summary["copies"][0]["starts"] == 2, "{summary:#}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn packets_that_a_filter_rejects_are_in_no_number_of_a_copy() {
    on_both(|engine, injector| {
        let group = GROUP.to_string();
        let options = ["-n", "1", "--group", &group, "--cpus", "none"];
        let device = format!("{engine}:{FAR}");
        let command = [
            "tcpdump", "-n", "-U", "-Z", "root", "-i", &device, "-w", "%i.pcap", "udp",
        ];
        let running = Running::start(&options, &command)?;
        await_shares(engine, 1)?;
        let frames = traffic::frames(7, &traffic::flows(7, 100), 0..1000)?;
        let is_udp = |it: &&traffic::Frame| it.flow.transport == fanpcap_testkit::Transport::Udp;
        let udp = frames.iter().filter(is_udp).count() as u64;
        ensure!(udp > 0 && udp < 1000);
        injector.send_all(&frames)?;
        running.wait_for_packets(&["0.pcap"], usize::try_from(udp)?)?;
        await_offered(engine, 1000)?;
        let summary = running.stop()?.summary();
        ensure_total(
            &summary,
            &[("received", udp), ("taken", udp), ("unread", 0)],
        )?;
        ensure!(summary["poller"]["offered"] == 1000, "{summary:#}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn copies_without_their_poller_are_not_started() {
    on_wire(|_| {
        let device = format!("packet:{FAR}");
        let command = ["tcpdump", "-n", "-i", &device, "-w", "%i.pcap"];
        let running = Running::start(&["-n", "2", "--cpus", "none"], &command)?;
        let ended = running.wait()?;
        let said = ended.said();
        ensure!(!ended.status.success(), "{said}");
        let expected = format!("no poller serves {device}: start one: fanpcap poller {device}");
        ensure!(said.contains(&expected), "{said}");
        ensure!(!said.contains("tcpdump:"), "{said}");
        Ok(())
    })
    .unwrap();
}
