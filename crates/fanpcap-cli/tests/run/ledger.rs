//! The ledger of copies that are killed all the time: what the device received is delivered, lost
//! by name, or within the bound that is told. `make ledger RUNS=10` does it ten times for each
//! mode, with more kills.

use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::{Veth, member, netns, veth};
use serde_json::Value;

use crate::{FAR, GROUP, NEAR, Running};

const COPIES: usize = 4;
const RATE: &str = "200kpps";

/// Packets of the one sender that the device has counted and that are on their way to the sockets,
/// whenever counters are compared.
const IN_FLIGHT: u64 = 1;

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn what_killed_copies_lose_is_told_within_the_bound_of_their_joins() {
    let runs = env::var("FANPCAP_LEDGER_RUNS").ok();
    let runs: Option<u64> = runs.map(|runs| runs.parse().expect("a number of runs"));
    let kills = if runs.is_some() { 20 } else { 8 };
    let mut failed = Vec::new();
    for mode in ["hash", "flow", "lb"] {
        for seed in 0..runs.unwrap_or(1) {
            let row = netns::within_new(|| run(mode, kills, seed)).unwrap();
            println!("{row}");
            if row.contains("WRONG") {
                failed.push(row);
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// One run; what came of it in one line.
fn run(mode: &str, kills: usize, seed: u64) -> Result<String> {
    Veth::new(NEAR, FAR, 1)?;
    let (group, copies) = (GROUP.to_string(), COPIES.to_string());
    let options = ["-n", &copies, "--group", &group, "--cpus", "none"];
    let options = [&options[..], &["--restart", "--fanout", mode]].concat();
    let command = ["tcpdump", "-n", "-Z", "root", "-i", FAR, "-w", "/dev/null"];
    let running = Running::start(&options, &command)?;
    running.wait_until_says("tcpdump: listening", COPIES)?;
    member::wait_for_members(GROUP, COPIES)?;
    let before = counted()?;
    let mut traffic = traffic()?;
    await_for("traffic", LIMIT, || {
        Ok((counted()? > before + 10_000).then_some(()))
    })?;
    let killed = kill_copies(&running, kills, seed);
    thread::sleep(Duration::from_millis(300));
    member::signal(traffic.id(), "INT")?;
    traffic.wait()?;
    killed?;
    thread::sleep(Duration::from_millis(300));
    let device = counted()? - before;
    running.signal("INT")?;
    let ended = running.wait()?;
    row((mode, seed, device), &ended.summary()).with_context(|| ended.said())
}

fn row((mode, seed, device): (&str, u64, u64), summary: &Value) -> Result<String> {
    let figure = |value: &Value, name: &str| {
        let figure = value[name].as_u64();
        figure.with_context(|| format!("{mode} {seed}: {name} is unknown: {summary:#}"))
    };
    let of = |name: &str| figure(&summary["total"], name);
    let (received, refused) = (of("received")?, of("refused")?);
    let named = [of("dropped")?, of("unread")?, of("taken")?];
    let (absent, bound) = (
        figure(&summary["absent"], "packets")?,
        of("uncounted_at_most")?,
    );
    let starts = summary["copies"].as_array().context("copies")?.iter();
    let starts: u64 = starts.filter_map(|copy| copy["starts"].as_u64()).sum();
    let rest = i64::try_from(device)? - i64::try_from(received + refused + absent)?;
    let times = summary["absent"]["times"].as_u64().unwrap_or(0);
    let slack = i64::try_from(IN_FLIGHT * (starts + times))?;
    let is_right = (-slack..=i64::try_from(bound)? + slack).contains(&rest);
    let mark = if is_right { "" } else { " WRONG" };
    ensure!(
        device > 100_000 && named.iter().sum::<u64>() == received,
        "{device}: {summary:#}"
    );
    Ok(format!(
        "{mode:4} {seed:2}: device {device}, taken {}, unread {}, dropped {}, refused {refused}, no copy {absent} ({} times), \
         rest {rest} of at most {bound}, {starts} starts{mark}",
        named[2], named[1], named[0], summary["absent"]["times"]
    ))
}

fn counted() -> Result<u64> {
    let counters = veth::counters(FAR)?;
    Ok(counters.received + counters.sent)
}

/// Traffic until it is interrupted.
fn traffic() -> Result<Child> {
    let staged = library_dir().map(|lib| lib.join("../bin/fanpcap"));
    let own = || PathBuf::from(env!("CARGO_BIN_EXE_fanpcap"));
    let program = staged.ok().filter(|it| it.exists()).unwrap_or_else(own);
    let line = ["gen", "-i", NEAR, "--rate", RATE, "--flows", "1000"];
    let child = Command::new(program)
        .args(line)
        .stdout(Stdio::null())
        .spawn()?;
    Ok(child)
}

/// Kills so many copies: some that capture, some as they start, and once all together.
fn kill_copies(running: &Running, kills: usize, seed: u64) -> Result<()> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9).wrapping_add(1));
    let mut killed = Vec::new();
    while killed.len() < kills {
        let young = random.below(2) == 0;
        let pause = random.below(if young { 40 } else { 800 });
        if young && !killed.is_empty() {
            await_start(running, &killed)?;
        }
        thread::sleep(Duration::from_millis(pause));
        let mut copies = copies(running)?;
        copies.retain(|pid| !killed.contains(pid));
        let all = killed.len() == kills / 2;
        let count = if all { copies.len() } else { 1 };
        // The youngest has the highest number, but for numbers that begin again.
        copies.reverse();
        if !young {
            let len = copies.len().max(1) as u64;
            copies.rotate_left(usize::try_from(random.below(len))?);
        }
        for pid in copies.into_iter().take(count) {
            member::signal(pid, "KILL")?;
            killed.push(pid);
        }
    }
    Ok(())
}

/// Waits for a copy that comes back, not long: perhaps all are there.
fn await_start(running: &Running, killed: &[u32]) -> Result<()> {
    let is_there = |pid: &&u32| !killed.contains(pid);
    let before = copies(running)?.iter().filter(is_there).count();
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end && copies(running)?.iter().filter(is_there).count() <= before {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The processes of the copies, in the order of their numbers.
fn copies(running: &Running) -> Result<Vec<u32>> {
    let pid = running.process.id();
    let find = || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        let is_copy = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(b"tcpdump\0")
        };
        let mut found: Vec<u32> = children.filter(is_copy).collect();
        found.sort_unstable();
        Ok((!found.is_empty()).then_some(found))
    };
    await_for("a copy", LIMIT, find)
}

/// Numbers that are the same for the same seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
