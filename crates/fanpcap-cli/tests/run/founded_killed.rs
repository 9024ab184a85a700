//! What the copies of founded groups leave when they are killed: the ledger counts it.

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::{Veth, member, needs, netns};

use crate::ledger::{Traffic, counted, kill_copies, ledger_runs, row};
use crate::{FAR, GROUP, NEAR, Running, founded, founded_xdp};

/// Kills both copies at once, with packets in their rings. Only the command is left to count them.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn the_ledger_is_exact_when_all_copies_die_at_once() {
    if !needs::programs(&["dumpcap"]) {
        return;
    }
    for seed in 0..crate::ledger::ledger_runs().unwrap_or(2) {
        let start = |command: &[&str]| founded::start("2", &["--fanout", "flow"], command);
        let row = netns::within_new(|| killed_at_once("flow", seed, start)).unwrap();
        println!("{row}");
        assert!(!row.contains("WRONG"), "{row}");
    }
}

fn killed_at_once(
    mode: &str,
    seed: u64,
    start: impl FnOnce(&[&str]) -> Result<Running>,
) -> Result<String> {
    Veth::new(NEAR, FAR, 1)?;
    let command = [
        "dumpcap", "-q", "-P", "-s", "96", "-i", FAR, "-w", "%i.pcap",
    ];
    let running = start(&command)?;
    let before = counted()?;
    let traffic = Traffic::start("50kpps")?;
    await_for("traffic", LIMIT, || {
        Ok((counted()? > before + 110_000 + 7777 * seed).then_some(()))
    })?;
    let pids = founded::pids()?;
    pids.iter()
        .try_for_each(|pid| member::signal(*pid, "STOP"))?;
    let stopped = counted()?;
    await_for("packets that nobody takes", LIMIT, || {
        Ok((counted()? > stopped + 1000).then_some(()))
    })?;
    traffic.end()?;
    let device = counted()? - before;
    pids.iter()
        .try_for_each(|pid| member::signal(*pid, "KILL"))?;
    let ended = running.wait()?;
    let summary = ended.summary();
    let of = |name: &str| summary["total"][name].as_u64();
    let known = ["received", "dropped", "taken", "unread", "refused"].map(of);
    ensure!(!known.contains(&None), "{summary:#}");
    ensure!(of("unread") > Some(0), "{summary:#}");
    ensure!(of("uncounted_at_most") == Some(0), "{summary:#}");
    row((mode, seed, device), &summary)
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn the_ledger_on_xdp_is_exact_when_all_copies_die_at_once() {
    if !needs::programs(&["dumpcap"]) {
        return;
    }
    for seed in 0..ledger_runs().unwrap_or(2) {
        let start = |command: &[&str]| founded_xdp::start(&["--fanout", "flow"], command);
        let row = netns::within_new(|| killed_at_once("xdp", seed, start)).unwrap();
        println!("{row}");
        assert!(!row.contains("WRONG"), "{row}");
    }
}

/// Copies of dumpcap are killed while they capture, while they start, and once all together.
#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn what_killed_copies_without_cap_bpf_lose_on_xdp_is_told_within_the_bound() {
    if !needs::programs(&["dumpcap"]) {
        return;
    }
    for seed in 0..ledger_runs().unwrap_or(1) {
        let row = netns::within_new(|| killed(seed)).unwrap();
        println!("{row}");
        assert!(!row.contains("WRONG"), "{row}");
    }
}

fn killed(seed: u64) -> Result<String> {
    Veth::new(NEAR, FAR, 1)?;
    let dumpcap = [
        "dumpcap", "-q", "-P", "-s", "96", "-i", FAR, "-w", "%i.pcap",
    ];
    let running = founded_xdp::start(&["--restart", "--fanout", "flow"], &dumpcap)?;
    member::wait_for_members(GROUP, 2)?;
    let before = counted()?;
    let traffic = Traffic::start("50kpps")?;
    let counts = |least: u64| Ok((counted()? > before + least).then_some(()));
    await_for("traffic", LIMIT, || counts(10_000))?;
    kill_copies(&running, 8, seed)?;
    let so_far = counted()? - before;
    await_for("more traffic", LIMIT, || counts(so_far + 100_000))?;
    traffic.end()?;
    let device = counted()? - before;
    running.signal("INT")?;
    let ended = running.wait()?;
    row(("xdp", seed, device), &ended.summary()).with_context(|| ended.said())
}
