//! Packets that the steering program drops are counted, on packet sockets and on XDP: all screens
//! show the number that the generator sent.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::{Injector, Program, Scratch, Veth, member, netns, veth};
use serde_json::Value;

use crate::captures::{frames, on_wire, wait_until_taken};
use crate::{FAR, GROUP, NEAR, Running};

/// The README's steering program. It drops packets that are not IP.
const PROGRAM: &str = "main = if has_port 53 then steer_to 0 else steer_flow";

const IP: u64 = 600;
const ARP: usize = 10;

/// An ARP request, padded to the least length of a frame.
fn arp() -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1]);
    frame.extend([
        2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2,
    ]);
    frame.resize(60, 0);
    frame
}

/// Starts three copies, of which each has captured.
fn start(device: &str, more: &[&str]) -> Result<Running> {
    let group = GROUP.to_string();
    let options = ["-n", "3", "--group", &group, "--cpus", "none"];
    let options = [&options[..], &["--fanout", PROGRAM], more].concat();
    let command = [
        "tcpdump", "-n", "-U", "-Z", "root", "-i", device, "-w", "%i.pcap",
    ];
    let running = Running::start(&options, &command)?;
    wait_for_shares(&running, 1)?;
    Ok(running)
}

/// Waits until all copies capture for the `times`-th time.
fn wait_for_shares(running: &Running, times: usize) -> Result<()> {
    running.wait_until_says("tcpdump: listening", 3 * times)?;
    running.wait_until_says("3 copies", 1)?;
    // Members get their shares when they first read their handles.
    thread::sleep(Duration::from_millis(600));
    Ok(())
}

fn fanpcap(line: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_fanpcap"))
        .args(line)
        .output()?;
    ensure!(output.status.success(), "{line:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

fn of_group(line: &[&str]) -> Result<Value> {
    let json: Value = serde_json::from_str(&fanpcap(line)?)?;
    let group = json.pointer("/devices/0/groups/0").unwrap_or(&json);
    Ok(group["steered_nowhere_packets_total"].clone())
}

/// Checks the screens while the copies run, until they show `packets`.
fn screens_show(packets: usize) -> Result<()> {
    let group = GROUP.to_string();
    await_for("the number on the screens", LIMIT, || {
        let in_group = of_group(&["group", FAR, &group, "--json"])?;
        Ok((in_group == packets).then_some(()))
    })?;
    let in_top = of_group(&["top", "--once", "--json", FAR])?;
    ensure!(in_top == packets, "top: {in_top}");
    let metrics = fanpcap(&["metrics", FAR])?;
    let mut lines = metrics.lines();
    let line = lines.find(|it| it.starts_with("fanpcap_group_steered_nowhere_packets_total{"));
    let line = line.context("no metric")?;
    ensure!(line.ends_with(&format!(" {packets}")), "{line}");
    let words = format!("{packets} dropped by the steering program");
    let told = fanpcap(&["group", FAR, &group])?.replace(" packets dropped", " dropped");
    ensure!(told.contains(&words), "{told}");
    Ok(())
}

fn dropped_packets_are_counted_on(device: &str) -> Result<()> {
    on_wire(|injector| {
        let running = start(device, &["--merge", "all.pcapng"])?;
        injector.send_all(&frames(IP)?)?;
        injector.send_all(&vec![arp(); ARP])?;
        wait_until_taken(IP)?;
        screens_show(ARP)?;
        // The count outlives the member whose filter counted.
        for copy in 0..2 {
            member::signal(running.copy(copy)?, "KILL")?;
        }
        await_for("the end of two members", LIMIT, || {
            let group = fanpcap(&["group", FAR, &GROUP.to_string(), "--json"])?;
            let group: Value = serde_json::from_str(&group)?;
            Ok((group["gone"]["members_total"] == 2).then_some(()))
        })?;
        injector.send_all(&vec![arp(); ARP])?;
        screens_show(2 * ARP)?;
        running.signal("INT")?;
        // The status is that of the killed copies.
        let ended = running.wait()?;
        let (summary, said) = (ended.summary(), ended.said());
        ensure!(summary["steered_nowhere"] == 2 * ARP, "{summary:#}");
        ensure!(
            said.contains("20 packets dropped by the steering program"),
            "{said}"
        );
        let total = &summary["total"];
        let sum =
            |names: &[&str]| -> u64 { names.iter().filter_map(|name| total[*name].as_u64()).sum() };
        let captured = sum(&["taken", "inherited", "unread", "dropped", "refused"]);
        ensure!(captured == IP, "{summary:#}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn packets_that_the_steering_program_drops_are_counted_on_packet_sockets() {
    dropped_packets_are_counted_on(FAR).unwrap();
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn packets_that_the_steering_program_drops_are_counted_on_xdp() {
    dropped_packets_are_counted_on(&format!("xdp:{FAR}")).unwrap();
}

/// The summary counts from the first copy's join, and the screens from the group's begin.
fn packets_that_a_member_dropped_before_are_not_the_copies_on(device: &str) -> Result<()> {
    on_wire(|injector| {
        let scratch = Scratch::new()?;
        let other = Program::tcpdump(device, scratch.file("other.pcap"))?;
        let _other = other.group(GROUP, PROGRAM).start(&scratch)?;
        injector.send_all(&vec![arp(); ARP])?;
        screens_show(ARP)?;
        let running = start(device, &[])?;
        injector.send_all(&vec![arp(); 2 * ARP])?;
        screens_show(3 * ARP)?;
        let summary = running.stop()?.summary();
        ensure!(summary["steered_nowhere"] == 2 * ARP, "{summary:#}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn what_was_dropped_nowhere_before_the_copies_is_not_theirs_on_packet_sockets() {
    packets_that_a_member_dropped_before_are_not_the_copies_on(FAR).unwrap();
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn what_was_dropped_nowhere_before_the_copies_is_not_theirs_on_xdp() {
    packets_that_a_member_dropped_before_are_not_the_copies_on(&format!("xdp:{FAR}")).unwrap();
}

/// The copies' group ends with its device, and is founded again on the next one.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn dropped_packets_of_a_group_that_is_founded_again_are_known() {
    netns::within_new(|| {
        Veth::new(NEAR, FAR, 1)?;
        let running = start(FAR, &["--restart", "--device", FAR])?;
        Injector::open(NEAR)?.send_all(&vec![arp(); ARP])?;
        screens_show(ARP)?;
        veth::ip(&format!("link delete {NEAR}"))?;
        running.wait_until_says("because a device is gone", 3)?;
        Veth::new(NEAR, FAR, 1)?;
        wait_for_shares(&running, 2)?;
        Injector::open(NEAR)?.send_all(&vec![arp(); 2 * ARP])?;
        screens_show(2 * ARP)?;
        let ended = running.stop()?;
        let (summary, said) = (ended.summary(), ended.said());
        ensure!(summary["steered_nowhere"] == 3 * ARP, "{summary:#} {said}");
        ensure!(!said.contains("is unknown"), "{said}");
        Ok(())
    })
    .unwrap();
}

/// On lo each packet comes twice to the filters, and the reader drops the outgoing copy.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_dropped_packet_counts_once_on_lo() {
    netns::within_new(|| {
        veth::ip("link set lo up")?;
        let scratch = Scratch::new()?;
        let member = Program::tcpdump("lo", scratch.file("lo.pcap"))?;
        let _member = member.group(GROUP, PROGRAM).start(&scratch)?;
        Injector::open("lo")?.send_all(&vec![arp(); ARP])?;
        let told = fanpcap(&["group", "lo", &GROUP.to_string()])?;
        let expected = format!("{ARP} packets dropped by the steering program");
        ensure!(told.contains(&expected), "{told}");
        Ok(())
    })
    .unwrap();
}
