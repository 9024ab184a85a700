//! The ledger of copies that are killed repeatedly. Each packet that the device received must be
//! delivered, reported as lost, or within the reported bound of uncounted packets. `make ledger
//! RUNS=10` runs the test ten times for each mode, with more kills.

use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::{Scratch, Veth, member, netns, veth};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

use crate::captures::{frames, on_wire};
use crate::{FAR, GROUP, NEAR, Running};

pub(crate) const COPIES: usize = 4;
pub(crate) const RATE: &str = "200kpps";

/// The largest number of packets that the device has counted and that have not reached the sockets
/// yet when the counters are compared. There is one sender, so there is at most one such packet.
const IN_FLIGHT: u64 = 1;

/// On XDP, the largest number of packets that the engine has counted and the device has not. A veth
/// counts its packets only after a poll of at most this number (veth.c, `veth_xdp_rcv()`).
const IN_POLL: u64 = 64;

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn what_killed_copies_lose_is_told_within_the_bound_of_their_joins() {
    let runs = ledger_runs();
    let kills = if runs.is_some() { 20 } else { 8 };
    let mut failed = Vec::new();
    for mode in ["hash", "flow", "lb", "xdp"] {
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

/// The number of runs for `make ledger`.
pub(crate) fn ledger_runs() -> Option<u64> {
    let runs = env::var("FANPCAP_LEDGER_RUNS").ok();
    runs.map(|runs| runs.parse().expect("a number of runs"))
}

/// Runs the test once. Returns the result in one line.
fn run(mode: &str, kills: usize, seed: u64) -> Result<String> {
    Veth::new(NEAR, FAR, 1)?;
    let (group, copies) = (GROUP.to_string(), COPIES.to_string());
    let options = ["-n", &copies, "--group", &group, "--cpus", "none"];
    let on_xdp = format!("xdp:{FAR}");
    let (fanout, device) = match mode {
        "xdp" => ("flow", &on_xdp[..]),
        mode => (mode, FAR),
    };
    let options = [
        &options[..],
        &["--device", FAR, "--restart", "--fanout", fanout],
    ]
    .concat();
    let command = [
        "tcpdump",
        "-n",
        "-Z",
        "root",
        "-s",
        "96",
        "-i",
        device,
        "-w",
        "/dev/null",
    ];
    let running = Running::start(&options, &command)?;
    running.wait_until_says("tcpdump: listening", COPIES)?;
    member::wait_for_members(GROUP, COPIES)?;
    let before = counted()?;
    let traffic = Traffic::start(RATE)?;
    await_for("traffic", LIMIT, || {
        Ok((counted()? > before + 10_000).then_some(()))
    })?;
    let killed = kill_copies(&running, kills, seed);
    await_for("more traffic", LIMIT, || {
        Ok((counted()? > before + 110_000).then_some(()))
    })?;
    thread::sleep(Duration::from_millis(300));
    traffic.end()?;
    killed?;
    let device = counted()? - before;
    running.signal("INT")?;
    let ended = running.wait()?;
    row((mode, seed, device), &ended.summary()).with_context(|| ended.said())
}

pub(crate) fn row((mode, seed, device): (&str, u64, u64), summary: &Value) -> Result<String> {
    let in_flight = if mode == "xdp" { IN_POLL } else { IN_FLIGHT };
    let figure = |value: &Value, name: &str| {
        let figure = value[name].as_u64();
        figure.with_context(|| format!("{mode} {seed}: {name} is unknown: {summary:#}"))
    };
    let of = |name: &str| figure(&summary["total"], name);
    let (received, refused) = (of("received")?, of("refused")?);
    let named = ["dropped", "unread", "taken", "inherited"];
    let named = [of(named[0])?, of(named[1])?, of(named[2])?, of(named[3])?];
    let (absent, bound) = (
        figure(&summary["absent"], "packets")?,
        of("uncounted_at_most")?,
    );
    let starts = summary["copies"].as_array().context("copies")?.iter();
    let starts: u64 = starts.filter_map(|copy| copy["starts"].as_u64()).sum();
    let rest = i64::try_from(device)? - i64::try_from(received + refused + absent)?;
    let times = summary["absent"]["times"].as_u64().unwrap_or(0);
    let slack = i64::try_from(in_flight * (starts + times))?;
    let is_right = (-slack..=i64::try_from(bound)? + slack).contains(&rest);
    let mark = if is_right { "" } else { " WRONG" };
    ensure!(bound <= device, "{bound} of {device}: {summary:#}");
    ensure!(
        device > 100_000 && named.iter().sum::<u64>() == received,
        "{device}: {summary:#}"
    );
    Ok(format!(
        "{mode:4} {seed:2}: device {device}, taken {}, inherited {}, unread {}, dropped {}, refused {refused}, \
         no copy {absent} ({} times), rest {rest} of at most {bound}, {starts} starts{mark}",
        named[2], named[3], named[1], named[0], summary["absent"]["times"]
    ))
}

pub(crate) fn counted() -> Result<u64> {
    let counters = veth::counters(FAR)?;
    Ok(counters.received + counters.sent)
}

/// Traffic that continues until this value is dropped or [`Traffic::end`] is called, but not longer
/// than the longest run.
pub(crate) struct Traffic(Child);

impl Traffic {
    pub(crate) fn start(rate: &str) -> Result<Self> {
        let staged = library_dir().map(|lib| lib.join("../bin/fanpcap"));
        let own = || PathBuf::from(env!("CARGO_BIN_EXE_fanpcap"));
        let program = staged.ok().filter(|it| it.exists()).unwrap_or_else(own);
        let line = [
            "gen",
            "-i",
            NEAR,
            "--rate",
            rate,
            "--flows",
            "1000",
            "--seconds",
            "120",
        ];
        let mut command = Command::new(program);
        Ok(Self(command.args(line).stdout(Stdio::null()).spawn()?))
    }

    /// Ends the traffic, and waits until the packets that were sent have reached the sockets.
    pub(crate) fn end(mut self) -> Result<()> {
        member::signal(self.0.id(), "INT")?;
        self.0.wait()?;
        thread::sleep(Duration::from_millis(300));
        Ok(())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills `kills` copies: some of them while they capture, some while they start, and once all
/// copies together.
pub(crate) fn kill_copies(running: &Running, kills: usize, seed: u64) -> Result<()> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut killed = Vec::new();
    while killed.len() < kills {
        let young = random.random();
        let pause = random.random_range(..if young { 40 } else { 800 });
        if young && !killed.is_empty() {
            await_start(running, &killed)?;
        }
        thread::sleep(Duration::from_millis(pause));
        let mut copies = copies(running)?;
        copies.retain(|pid| !killed.contains(pid));
        let all = killed.len() == kills / 2;
        let count = if all { copies.len() } else { 1 };
        // Put the youngest copy first: it has the highest process number, unless process numbers
        // have wrapped.
        copies.reverse();
        if !young {
            let len = copies.len().max(1) as u64;
            copies.rotate_left(usize::try_from(random.random_range(..len))?);
        }
        for pid in copies.into_iter().take(count) {
            member::signal(pid, "KILL")?;
            killed.push(pid);
        }
    }
    Ok(())
}

/// Waits for a copy that the command restarts, at most a second, because all copies may run
/// already.
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
pub(crate) fn copies(running: &Running) -> Result<Vec<u32>> {
    let pid = running.process.id();
    let find = || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        let is_copy = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(b"tcpdump\0") || line.starts_with(b"dumpcap\0")
        };
        let mut found: Vec<u32> = children.filter(is_copy).collect();
        found.sort_unstable();
        Ok((!found.is_empty()).then_some(found))
    };
    await_for("a copy", LIMIT, find)
}

/// The kernel clears its counters when a process reads them. If a copy is killed before it
/// publishes the counters that it has read, their packets are in no report. The bound of uncounted
/// packets must include them.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_reading_that_dies_with_its_copy_is_within_the_bound() {
    const FRAMES: u64 = 40;
    on_wire(|injector| {
        let scratch = Scratch::new()?;
        let preload = format!("LD_PRELOAD={}", preloaded(&scratch, "dies")?);
        let group = GROUP.to_string();
        let options = [
            "-n", "1", "--group", &group, "--cpus", "none", "--device", FAR,
        ];
        let tcpdump = ["tcpdump", "-n", "-Z", "root", "-i", FAR, "-w", "/dev/null"];
        let command = [&["env", "DIES=reading", &preload], &tcpdump[..]].concat();
        let running = Running::start(&options, &command)?;
        running.wait_until_says("tcpdump: listening", 1)?;
        member::wait_for_members(GROUP, 1)?;
        injector.send_all(&frames(FRAMES)?)?;
        let ended = running.wait()?;
        let total = &ended.summary()["total"];
        let figure = |name: &str| total[name].as_u64().with_context(|| format!("{total:#}"));
        let (received, bound) = (figure("received")?, figure("uncounted_at_most")?);
        ensure!(received < FRAMES, "nothing was lost: {total:#}");
        ensure!(received + bound >= FRAMES, "{total:#}");
        Ok(())
    })
    .unwrap();
}

/// A copy that is killed while it joins has a socket that is bound to the device but not in the
/// group. The kernel also gives the packets that this socket drops to a member of the group, so
/// they must not count as lost.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_copy_that_dies_as_it_joins_has_refused_nothing() {
    let line = "if [ %i = 0 ]; then exec TCPDUMP; fi; while [ ! -e go ]; do sleep 0.05; done; \
                DIES=joining LD_PRELOAD=OBJECT exec TCPDUMP";
    let row = in_traffic(&["-n", "2"], line, |running| {
        // The command then asks why, as for a copy that can't join.
        running.wait_until_says("copy 1 has not joined the group", 1)?;
        std::fs::write(running.scratch.file("go"), "")?;
        running.wait_until_says("copy 1 ended", 1)
    });
    assert!(!row.contains("WRONG"), "{row}");
}

/// No copy runs, a copy starts, and it dies while it joins. The time without a copy must continue
/// until the next copy has joined.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_copy_that_dies_as_it_joins_ends_no_time_without_a_copy() {
    let row = second_dies("joining", "flow");
    assert!(!row.contains("WRONG"), "{row}");
}

/// No copy runs, a copy starts, and it dies when the kernel has let it into the group. Its join is
/// in the journal of the group's table, and its socket also in the group's descriptor store. The
/// packets that this socket refuses until it is closed must be counted.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn what_a_copy_refuses_that_dies_as_it_has_entered_is_told() {
    for mode in ["flow", "hash"] {
        let row = second_dies("entered", mode);
        assert!(!row.contains("WRONG"), "{row}");
    }
}

/// One copy is killed. The next dies at the point `dies` of its join, and the third captures.
/// Returns the result in one line.
fn second_dies(dies: &str, mode: &str) -> String {
    let line = format!(
        "echo >>starts; if [ $(wc -l <starts) = 2 ]; then \
         export DIES={dies} LD_PRELOAD=OBJECT; fi; exec TCPDUMP"
    );
    let options = ["-n", "1", "--restart", "--fanout", mode];
    in_traffic(&options, &line, |running| {
        let first = copies(running)?;
        member::signal(first[0], "KILL")?;
        // From then on the third copy is a member. It may have taken over the second one's ring,
        // and then the second one's socket stays in the kernel's group.
        running.wait_until_says("tcpdump: listening", 2)
    })
}

/// A copy opens handles on other devices, too, as dumpcap does. The group refuses these handles,
/// because it is on another device. Their ends must not count as the end of a copy.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_handle_that_its_group_refuses_begins_no_time_without_a_copy() {
    on_wire(|_| {
        let group = GROUP.to_string();
        let options = ["-n", "1", "--group", &group, "--cpus", "none"];
        let line = format!(
            "tcpdump -n -Z root -i {FAR} -w /dev/null & sleep 1; \
             for n in 1 2 3; do tcpdump -n -Z root -i {NEAR} -c 1 -w /dev/null; done; wait"
        );
        let running = Running::start(&options, &["sh", "-c", &line])?;
        running.wait_until_says("fan-out group", 3)?;
        running.signal("INT")?;
        let ended = running.wait()?;
        let absent = &ended.summary()["absent"]["times"];
        ensure!(absent == 0, "{absent}: {}", ended.said());
        Ok(())
    })
    .unwrap();
}

/// Runs copies of the shell line `line` while packets come, and calls `happens` in the middle of
/// the traffic. Returns the result in one line.
pub(crate) fn in_traffic(
    options: &[&str],
    line: &str,
    happens: impl FnOnce(&Running) -> Result<()> + Send,
) -> String {
    let row = netns::within_new(|| {
        Veth::new(NEAR, FAR, 1)?;
        let scratch = Scratch::new()?;
        let tcpdump = format!("tcpdump -n -Z root -i {FAR} -w /dev/null");
        let line = line
            .replace("TCPDUMP", &tcpdump)
            .replace("OBJECT", &preloaded(&scratch, "dies")?)
            .replace("SLOWLY", &preloaded(&scratch, "attaches_slowly")?);
        let group = GROUP.to_string();
        let common = ["--group", &group, "--cpus", "none", "--device", FAR];
        let running = Running::start(&[&common, options].concat(), &["sh", "-c", &line])?;
        running.wait_until_says("tcpdump: listening", 1)?;
        member::wait_for_members(GROUP, 1)?;
        let before = counted()?;
        let traffic = Traffic::start(RATE)?;
        let counts = |least: u64| Ok((counted()? > before + least).then_some(()));
        await_for("traffic", LIMIT, || counts(10_000))?;
        happens(&running).with_context(|| running.said())?;
        let so_far = counted()? - before;
        await_for("more traffic", LIMIT, || {
            counts(so_far.max(100_000) + 10_000)
        })?;
        traffic.end()?;
        let device = counted()? - before;
        running.signal("INT")?;
        let ended = running.wait()?;
        let mode = if line.contains("xdp") { "xdp" } else { "hash" };
        row((mode, 0, device), &ended.summary()).with_context(|| ended.said())
    });
    row.expect("a run")
}

/// Compiles an object that is preloaded into tcpdump.
fn preloaded(scratch: &Scratch, name: &str) -> Result<String> {
    let source = format!("{}/tests/run/c/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let object = scratch.file(&format!("{name}.so"));
    let object = object.to_str().context("a path in UTF-8")?;
    let mut compiler = Command::new("cc");
    let compiled = compiler.args(["-shared", "-fPIC", "-o", object, &source]);
    ensure!(compiled.status()?.success(), "cc failed");
    Ok(object.to_owned())
}
