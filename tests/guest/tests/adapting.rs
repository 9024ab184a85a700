//! `fanpcap tune --adapt` on a card with four receive queues: it balances skewed flows, names
//! elephant flows, and restores the indirection table.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_guest_tests::{Cards, ethtool, fanpcap, tune};
use fanpcap_linux::process::child;
use fanpcap_nic::device::Device;
use fanpcap_nic::error::DeviceError;
use fanpcap_nic::knob::{Knob, Knobs, Setting};
use fanpcap_nic::settings::{self, Settings};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Direction, Flow};
use fanpcap_testkit::{Injector, await_for};

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;

/// The longest time of a command. One of its rounds may take ten seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// Bursts of this size, with a pause of this length between them, overrun no queue.
const BURST: usize = 16;
const PAUSE: Duration = Duration::from_millis(4);

/// A card with an indirection table. The test can compute the card's hash.
struct Bench {
    cards: Cards,
    /// The table before the command changes it.
    table: Vec<u32>,
}

impl Bench {
    /// Returns `None` and prints the reason if the guest has no such card.
    #[allow(clippy::print_stdout, reason = "the tally reads it")]
    fn of_guest() -> Result<Option<Self>> {
        let Some(cards) = Cards::of_guest()? else {
            return Ok(None);
        };
        if let Err(DeviceError::Absent) = value(&cards.far, Setting::Table) {
            println!("SKIP: virtio_net has no table of receive-side scaling (Linux 5.18)");
            return Ok(None);
        }
        ensure_hash_is_passed_on(&cards.far)?;
        let table = table(&cards.far)?;
        ensure!(table.iter().max() == Some(&3), "{table:?}");
        Ok(Some(Self { cards, table }))
    }

    /// Starts `fanpcap tune` on the far card with these options.
    fn adapt(&self, options: &[&str]) -> Result<Child> {
        let mut command = Command::new(fanpcap()?);
        command.args(["tune", &self.cards.far.name]).args(options);
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        output.spawn().context("starting fanpcap")
    }

    /// Sends the frames repeatedly while `work` runs.
    fn while_sending<T>(&self, frames: &[Frame], work: impl FnOnce() -> Result<T>) -> Result<T> {
        let sender = Injector::open(&self.cards.near.name)?;
        let is_done = AtomicBool::new(false);
        let send = || -> Result<()> {
            for burst in frames.chunks(BURST).cycle() {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                for frame in burst {
                    sender.send(&frame.bytes)?;
                }
                thread::sleep(PAUSE);
            }
            Ok(())
        };
        thread::scope(|scope| {
            let sending = scope.spawn(send);
            let done = work();
            is_done.store(true, Ordering::Relaxed);
            sending.join().map_err(|_| anyhow!("the sender"))??;
            done
        })
    }

    /// The entry of the indirection table that the card selects for a flow's requests by their
    /// hash.
    fn entry(&self, flow: &Flow) -> Result<usize> {
        let key = value(&self.cards.far, Setting::Key)?;
        let digits = key.as_bytes().chunks(2);
        let key: Vec<u8> = digits
            .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
            .collect::<Result<_>>()?;
        let (source, destination) = flow.ends(Direction::Request);
        let mut input = Vec::new();
        for end in [source, destination] {
            match end.ip() {
                std::net::IpAddr::V4(address) => input.extend(address.octets()),
                std::net::IpAddr::V6(address) => input.extend(address.octets()),
            }
        }
        for end in [source, destination] {
            input.extend(end.port().to_be_bytes());
        }
        Ok(toeplitz(&key, &input) as usize % self.table.len())
    }

    /// Frames of many flows. The large flows arrive at queue 0. In each part of the frames, the
    /// flows have the same proportions.
    fn skewed(&self) -> Result<Vec<Frame>> {
        let mut flows = traffic::flows(16, 100);
        let mut is_elsewhere = Vec::new();
        for flow in &flows {
            is_elsewhere.push(self.table[self.entry(flow)?] > 0);
        }
        let mut order: Vec<usize> = (0..flows.len()).collect();
        order.sort_by_key(|&it| is_elsewhere[it]);
        // The 30 largest flows are chosen. Restore the original order of the others.
        order[30..].sort_unstable();
        flows = order.into_iter().map(|it| flows[it]).collect();
        let sizes = (0..).map(|rank| 600 / (rank + 15));
        mixed(&flows.into_iter().zip(sizes).collect::<Vec<_>>())
    }

    fn ensure_table_is_back(&self) -> Result<()> {
        let now = table(&self.cards.far)?;
        ensure!(now == self.table, "{now:?} instead of {:?}", self.table);
        Ok(())
    }
}

/// Turns on receive hashing, which `--adapt` needs. First checks that the command's error names the
/// feature while the feature is off. Leaves the feature on, because virtio_net does not hash any
/// more if the feature is turned off and on again.
fn ensure_hash_is_passed_on(device: &Device) -> Result<()> {
    let feature = Setting::Feature("rx-hashing".to_owned());
    if value(device, feature)? == "off" {
        let refused = Command::new(fanpcap()?)
            .args(["tune", &device.name, "--adapt", "--rounds", "1"])
            .output()?;
        let said = String::from_utf8_lossy(&refused.stderr);
        let command = format!("ethtool -K {} receive-hashing on", device.name);
        ensure!(
            said.contains(&command) && !refused.status.success(),
            "{said}"
        );
        ethtool(&["-K", &device.name, "receive-hashing", "on"])?;
    }
    Ok(())
}

/// The frames of all flows, evenly mixed. Each flow has its given number of frames.
fn mixed(flows: &[(Flow, usize)]) -> Result<Vec<Frame>> {
    let mut order: Vec<(usize, usize)> = Vec::new();
    for (number, &(_, count)) in flows.iter().enumerate() {
        order.extend((0..count).map(|at| ((2 * at + 1) * 1_000_000 / (2 * count), number)));
    }
    order.sort_unstable();
    let frame = |(_, number): (usize, usize)| {
        let (flow, _) = flows[number];
        traffic::frame(flow, Direction::Request, 0, 0)
    };
    order.into_iter().map(frame).collect()
}

/// The Toeplitz hash of the fields in `input` with this key (Microsoft's "Introduction to Receive
/// Side Scaling", "RSS Hashing Types").
fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let word = |at: usize| {
        let bytes = [key[at], key[at + 1], key[at + 2], key[at + 3], key[at + 4]];
        bytes
            .iter()
            .fold(0, |sum, &byte| (sum << 8) | u64::from(byte))
    };
    let mut hash = 0;
    for (at, byte) in input.iter().enumerate() {
        for bit in 0..8 {
            if (byte >> (7 - bit)) & 1 == 1 {
                hash ^= word(at) >> (8 - bit);
            }
        }
    }
    u32::try_from(hash & 0xffff_ffff).unwrap_or(0)
}

fn value(device: &Device, setting: Setting) -> Result<String, DeviceError> {
    Settings(device).read(&Knob::Setting(setting))
}

fn table(device: &Device) -> Result<Vec<u32>> {
    Ok(settings::table(&value(device, Setting::Table)?)?)
}

/// Waits for the command's end and returns its output.
fn finish(mut child: Child) -> Result<String> {
    let ended = await_for("fanpcap tune to end", LIMIT, || Ok(child.try_wait()?));
    if ended.is_err() {
        child.kill()?;
    }
    let mut said = String::new();
    child
        .stdout
        .take()
        .context("stdout")?
        .read_to_string(&mut said)?;
    child
        .stderr
        .take()
        .context("stderr")?
        .read_to_string(&mut said)?;
    let status = child.wait()?;
    ensure!(status.success(), "{status}:\n{said}");
    Ok(said)
}

/// For each round, by how many percent the busiest queue exceeded its share.
fn excesses(said: &str) -> Result<Vec<f64>> {
    let figures = said.lines().filter_map(|line| {
        let (_, rest) = line.split_once("busiest queue ")?;
        rest.split(' ').next()
    });
    Ok(figures.map(str::parse).collect::<Result<_, _>>()?)
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
#[allow(clippy::print_stdout, reason = "the figures are of interest")]
fn skewed_flows_are_level_within_twenty_rounds_and_the_table_comes_back() -> Result<()> {
    let Some(bench) = Bench::of_guest()? else {
        return Ok(());
    };
    let frames = bench.skewed()?;
    let said = bench.while_sending(&frames, || {
        finish(bench.adapt(&["--adapt=all", "--rounds", "10"])?)
    })?;
    println!("{said}");
    let found = excesses(&said)?;
    ensure!(found.len() == 10, "{said}");
    ensure!(found[0] > 40.0, "{said}");
    // By chance a queue exceeds its share by more than 5 % in some rounds.
    let level = found[5..].iter().filter(|&&excess| excess <= 5.0);
    ensure!(level.count() >= 3, "{said}");
    ensure!(said.contains(", as before"), "{said}");
    bench.ensure_table_is_back()
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn an_elephant_is_named_and_stays_while_the_others_leave_it() -> Result<()> {
    let Some(bench) = Bench::of_guest()? else {
        return Ok(());
    };
    let flows = traffic::flows(17, 10);
    let elephant = flows[0];
    let entry = bench.entry(&elephant)?;
    let sizes = flows
        .iter()
        .map(|flow| (*flow, if *flow == elephant { 600 } else { 10 }));
    let frames = mixed(&sizes.collect::<Vec<_>>())?;
    let said = bench.while_sending(&frames, || {
        finish(bench.adapt(&["--adapt=all", "--rounds", "3"])?)
    })?;
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("it stays"))
        .collect();
    ensure!(lines.len() == 1, "{said}");
    let begin = format!(": entry {entry} of queue {} has ", bench.table[entry]);
    ensure!(lines[0].contains(&begin), "{said}");
    for end in [elephant.client, elephant.server] {
        ensure!(lines[0].contains(&end.to_string()), "{said}");
    }
    let moves: Vec<&str> = said
        .lines()
        .filter_map(|line| Some(line.split_once(" moved: ")?.1))
        .flat_map(|moves| moves.split_whitespace())
        .collect();
    ensure!(!moves.is_empty(), "{said}");
    let of_it = format!("{entry}:");
    ensure!(!moves.iter().any(|it| it.starts_with(&of_it)), "{said}");
    bench.ensure_table_is_back()
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn however_it_ends_the_table_comes_back() -> Result<()> {
    let Some(bench) = Bench::of_guest()? else {
        return Ok(());
    };
    let frames = bench.skewed()?;
    let device = &bench.cards.far;
    let end_by = |signal| -> Result<Child> {
        let adapting = bench.adapt(&["--adapt=all"])?;
        await_for("a move", LIMIT, || {
            Ok((table(device)? != bench.table).then_some(()))
        })?;
        let second = bench
            .adapt(&["--adapt", "--rounds", "1"])?
            .wait_with_output()?;
        let said = String::from_utf8_lossy(&second.stderr);
        let first = format!("process {} has set", adapting.id());
        ensure!(said.contains(&first) && !second.status.success(), "{said}");
        child::signal(adapting.id(), signal)?;
        Ok(adapting)
    };
    bench.while_sending(&frames, || {
        finish(end_by(SIGINT)?)?;
        bench.ensure_table_is_back()?;
        let mut killed = end_by(SIGKILL)?;
        killed.wait()?;
        ensure!(
            table(device)? != bench.table,
            "the killed command restored it"
        );
        // The next start restores the table first.
        let next = bench.adapt(&["--adapt", "--rounds", "1"])?;
        let said = finish(next)?;
        ensure!(said.contains("as before"), "{said}");
        bench.ensure_table_is_back()?;
        end_by(SIGKILL)?.wait()?;
        tune(&[&device.name, "--restore"])?;
        bench.ensure_table_is_back()
    })
}
