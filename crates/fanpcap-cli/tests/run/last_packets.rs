//! The end of `fanpcap run` by a signal: the copies take the packets in their rings before they get
//! the signal.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::Injector;
use fanpcap_testkit::await_for::within;
use serde_json::Value;

use crate::captures::{frames, on_wire};
use crate::ledger::Traffic;
use crate::{Ended, FAR, GROUP, Running};

/// A mode of the kernel's, the default mode, a steering program, and the XDP engine: the mode, and
/// the device's name.
fn modes() -> [(&'static str, String); 4] {
    [
        ("hash", FAR.to_owned()),
        ("flow", FAR.to_owned()),
        ("main = steer_rrobin", FAR.to_owned()),
        ("flow", format!("xdp:{FAR}")),
    ]
}

/// Starts two copies of tcpdump without -U, and with its read time-out of one second.
fn tcpdumps(mode: &str, device: &str) -> Result<Running> {
    let group = GROUP.to_string();
    let options = ["-n", "2", "--group", &group, "--cpus", "none"];
    let more = ["--fanout", mode, "--merge", "all.pcapng"];
    let tcpdump = ["tcpdump", "-n", "-Z", "root", "-i", device, "-w", "%i.pcap"];
    let running = Running::start(&[&options[..], &more].concat(), &tcpdump)?;
    running.wait_until_says("tcpdump: listening", 2)?;
    running.wait_until_says(&format!("on {FAR}: 2 copies"), 1)?;
    // Members of a steered group get their shares when they are first read.
    thread::sleep(Duration::from_millis(300));
    Ok(running)
}

fn send_slowly(injector: &Injector, packets: u64) -> Result<()> {
    for frame in frames(packets)? {
        injector.send_all(&[frame])?;
        thread::sleep(Duration::from_millis(7));
    }
    Ok(())
}

fn figure(summary: &Value, name: &str) -> Result<u64> {
    let figure = summary["total"][name].as_u64();
    figure.with_context(|| format!("{name}: {summary:#}"))
}

/// Checks that the ledger knows of no loss, and that the merged file has all packets.
fn ensure_no_loss(ended: &Ended) -> Result<u64> {
    let summary = ended.summary();
    let received = figure(&summary, "received")?;
    for name in ["dropped", "unread", "refused", "uncounted_at_most"] {
        ensure!(figure(&summary, name)? == 0, "{name}: {summary:#}");
    }
    let merged = summary["merge"]["packets"].as_u64();
    ensure!(merged == Some(received), "{summary:#} {}", ended.said());
    ensure!(summary["absent"]["times"] == 0, "{summary:#}");
    Ok(received)
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn packets_that_came_right_before_the_signal_are_in_the_merged_file() {
    for (mode, device) in modes() {
        on_wire(|injector| {
            let running = tcpdumps(mode, &device)?;
            send_slowly(injector, 20)?;
            let ended = running.stop()?;
            let received = ensure_no_loss(&ended)?;
            ensure!(received == 20, "{received}: {}", ended.said());
            Ok(())
        })
        .with_context(|| format!("{mode} on {device}"))
        .unwrap();
    }
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn packets_that_come_after_the_signal_are_no_loss() {
    for (mode, device) in modes() {
        on_wire(|_| {
            let running = tcpdumps(mode, &device)?;
            let traffic = Traffic::start("5kpps")?;
            thread::sleep(Duration::from_millis(500));
            let ended = running.stop()?;
            traffic.end()?;
            let received = ensure_no_loss(&ended)?;
            ensure!(received > 0, "{}", ended.said());
            Ok(())
        })
        .with_context(|| format!("{mode} on {device}"))
        .unwrap();
    }
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_second_signal_ends_the_copies_at_once() {
    on_wire(|injector| {
        let running = tcpdumps("hash", FAR)?;
        // The kernel hands over these packets after tcpdump's time-out of one second.
        injector.send_all(&frames(20)?)?;
        let begin = Instant::now();
        running.signal("INT")?;
        thread::sleep(Duration::from_millis(250));
        running.signal("INT")?;
        let ended = running.wait()?;
        let lasted = begin.elapsed();
        ensure!(lasted < within(Duration::from_millis(900)), "{lasted:?}");
        ensure!(ended.status.success(), "{}", ended.said());
        ensure!(
            !ended.said().contains("killing the copies"),
            "{}",
            ended.said()
        );
        let summary = ended.summary();
        let (taken, unread) = (figure(&summary, "taken")?, figure(&summary, "unread")?);
        ensure!(taken + unread == 20 && unread > 0, "{summary:#}");
        Ok(())
    })
    .unwrap();
}
