//! Merged captures of copies that are killed repeatedly. `make ledger RUNS=10` runs each test ten
//! times, with more kills.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::{Veth, member, netns};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

use crate::ledger::{COPIES, RATE, Traffic, copies, counted, kill_copies, ledger_runs};
use crate::{FAR, GROUP, NEAR, Running, printed};

/// The longest time of a merge. A command that is built without optimization needs long to merge
/// millions of packets.
const MERGED_WITHIN: Duration = Duration::from_secs(120);

/// In a group with a steering program, the restarted copy or another copy reads the ring of a
/// killed copy. So each packet that the device received must be in the merged capture, or be
/// reported as lost.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_merged_capture_and_the_named_losses_are_all_that_came() {
    all_runs(Kills {
        name: "at random",
        rate: RATE,
        count: if ledger_runs().is_some() { 20 } else { 8 },
        kill: kill_at_random,
        is_exact: false,
    });
}

/// Copies are killed one by one, so at least one copy always captures. Then the report must account
/// for every packet exactly.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn a_merged_capture_of_copies_that_are_killed_one_by_one_lacks_what_is_named_and_nothing_else() {
    all_runs(Kills {
        name: "one by one",
        // The rate is lower here. The test waits for each restart, and the pause before a restart
        // grows, so the test lasts longer and would have too many packets to merge.
        rate: "120kpps",
        count: if ledger_runs().is_some() { 20 } else { 3 },
        kill: kill_one_by_one,
        is_exact: true,
    });
}

/// A way in which the test kills copies.
#[derive(Clone, Copy)]
struct Kills {
    name: &'static str,
    rate: &'static str,
    count: usize,
    /// Kills copies. Its arguments are the command, the number of kills, and a seed.
    kill: fn(&Running, usize, u64) -> Result<()>,
    /// Whether the command must report every loss exactly. If not, a loss may also be within the
    /// reported bound.
    is_exact: bool,
}

#[expect(clippy::print_stdout, reason = "the figures of a test")]
fn all_runs(kills: Kills) {
    let mut failed = Vec::new();
    for seed in 7..7 + ledger_runs().unwrap_or(1) {
        let row = netns::within_new(|| merged(kills, seed)).expect("a run");
        println!("{row}");
        failed.extend(Some(row).filter(|row| row.contains("WRONG")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn kill_at_random(running: &Running, kills: usize, seed: u64) -> Result<()> {
    // First stop the copy, so that packets collect in its ring. Other copies must take over these
    // packets.
    let first = copies(running)?[0];
    member::signal(first, "STOP")?;
    thread::sleep(Duration::from_millis(200));
    member::signal(first, "KILL")?;
    await_for("others to read what it has left", LIMIT, || {
        let group = printed(&["group", FAR, &GROUP.to_string(), "--json"])?;
        let group: Value = serde_json::from_str(&group).context("the group")?;
        let inherited = &group["gone"]["inherited_packets_total"];
        Ok(inherited.as_u64().filter(|&packets| packets > 0))
    })?;
    kill_copies(running, kills, seed)
}

/// Kills copies one by one. Before each kill, waits until all copies capture, and for a random time
/// after that.
fn kill_one_by_one(running: &Running, kills: usize, seed: u64) -> Result<()> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut left = Vec::new();
    for killed in 0..kills {
        running.wait_until_says("tcpdump: listening", COPIES + killed)?;
        thread::sleep(Duration::from_millis(random.random_range(100..250)));
        // Kill all copies once before killing one again, because the command does not restart a
        // copy that ends too often.
        if killed % COPIES == 0 {
            left = copies(running)?;
        }
        let which = random.random_range(..left.len());
        let victim = left.swap_remove(which);
        if random.random() {
            member::signal(victim, "STOP")?;
            thread::sleep(Duration::from_millis(random.random_range(..150)));
        }
        member::signal(victim, "KILL")?;
    }
    running.wait_until_says("tcpdump: listening", COPIES + kills)
}

/// Runs the command once with a merged capture. Returns the result in one line.
fn merged(kills: Kills, seed: u64) -> Result<String> {
    Veth::new(NEAR, FAR, 1)?;
    let (group, copies) = (GROUP.to_string(), COPIES.to_string());
    let options = ["-n", &copies, "--group", &group, "--cpus", "none"];
    let more = ["--restart", "--fanout", "flow", "--merge", "all.pcapng"];
    let tcpdump = ["tcpdump", "-n", "-U", "-Z", "root", "-i", FAR];
    let command = [&tcpdump[..], &["-w", "%i.pcap"]].concat();
    let running = Running::start(&[&options[..], &more].concat(), &command)?;
    running.wait_until_says("tcpdump: listening", COPIES)?;
    member::wait_for_members(GROUP, COPIES)?;
    let before = counted()?;
    let traffic = Traffic::start(kills.rate)?;
    let begun = Instant::now();
    await_for("traffic", LIMIT, || {
        Ok((counted()? > before + 10_000).then_some(()))
    })?;
    let killed = (kills.kill)(&running, kills.count, seed);
    thread::sleep(Duration::from_millis(300));
    let lasted = begun.elapsed().as_secs_f64();
    traffic.end()?;
    killed?;
    // Let the copies read the remaining packets.
    thread::sleep(Duration::from_secs(1));
    let device = counted()? - before;
    running.signal("INT")?;
    let ended = running.wait_for(MERGED_WITHIN)?;
    let kpps = device as f64 / lasted / 1e3;
    merged_row((kills, seed, device, kpps), &ended.summary()).with_context(|| ended.said())
}

fn merged_row(
    (kills, seed, device, kpps): (Kills, u64, u64, f64),
    summary: &Value,
) -> Result<String> {
    let figure = |value: &Value| value.as_i64().with_context(|| format!("{summary:#}"));
    let total = &summary["total"];
    let of = |name: &str| figure(&total[name]);
    let (dropped, unread, refused) = (of("dropped")?, of("unread")?, of("refused")?);
    let (inherited, bound) = (of("inherited")?, of("uncounted_at_most")?);
    let absent = figure(&summary["absent"]["packets"])?;
    let not_written = figure(&summary["taken_not_written"])?;
    let merged = figure(&summary["merge"]["packets"])?;
    let named = dropped + unread + refused + absent;
    let rest = i64::try_from(device)? - merged - not_written - named;
    let slack = i64::try_from(2 * kills.count)?;
    // A killed copy loses at most one packet that it has taken, because tcpdump -U writes each
    // packet immediately. If a copy dies before the ledger has read its page, the bound includes
    // packets that the copy has written.
    let (rests, least) = match kills.is_exact {
        true => (0..=0, 0),
        false => (-slack..=bound + slack, -bound),
    };
    let is_right = rests.contains(&rest) && (least..=slack).contains(&not_written);
    let mark = if is_right { "" } else { " WRONG" };
    ensure!(inherited > 0, "{summary:#}");
    let mark = if mark.is_empty() {
        String::new()
    } else {
        format!("{mark} {summary}")
    };
    Ok(format!(
        "{} {seed:2}: device {device} ({kpps:.0} kpps), merged {merged}, inherited {inherited}, \
         taken, not written {not_written}, unread {unread}, dropped {dropped}, refused {refused}, \
         no copy {absent}, rest {rest} of at most {bound}{mark}",
        kills.name
    ))
}
