//! Two analyzers, each with its own buckets: together they have each packet once.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::mirror::HOST;
use fanpcap_testkit::{await_for, netns};

use crate::account::{Line, Truth};
use crate::files;
use crate::stage::{Engine, LOOK, PATIENCE, REST, Stage, id};
use crate::wire;

/// How long packets come before an event, and how long after it.
const BEFORE: Duration = Duration::from_secs(1);

/// The settings with an address for the stage's own analyzer and an address for [`Second`].
fn settings() -> String {
    format!("mode = capture\nanalyzers = {HOST}:7710, {HOST}:7711\n")
}

/// The analyzer of the odd buckets, which is killed when this value is dropped. The stage's own
/// analyzer has the even buckets.
struct Second(Child);

impl Second {
    /// Starts the analyzer, and waits until it has reports of all nodes.
    fn start(stage: &Stage) -> Result<Self> {
        // The new file does not contain what an earlier analyzer printed.
        let printed = File::create(Self::printed(stage))?;
        let listen = format!("{HOST}:7711");
        let words = ["analyzer", "--json", "--listen", &listen];
        let mut command = stage.program("analyzer1", &words)?;
        command.arg("--write").arg(Self::records(stage));
        let second = Self(command.stdout(printed).spawn()?);
        let knows = |line: &Line| (0..3).all(|node| line.verdict(&id(node)).is_some());
        await_for("all nodes' reports", PATIENCE, || {
            thread::sleep(LOOK);
            Ok(Self::line(stage).filter(knows))
        })
        .with_context(|| stage.output())?;
        Ok(second)
    }

    /// The directory with the analyzer's files.
    fn records(stage: &Stage) -> PathBuf {
        stage.scratch.file("records1")
    }

    fn printed(stage: &Stage) -> PathBuf {
        stage.scratch.file("analyzer1.json")
    }

    /// The analyzer's last line.
    fn line(stage: &Stage) -> Option<Line> {
        Line::last(&fs::read_to_string(Self::printed(stage)).ok()?)
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // Killing fails if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the accounts of both analyzers do not change for a while. Returns their last lines.
fn await_rest(stage: &Stage) -> Result<[Line; 2]> {
    let mut since: Option<[Line; 2]> = None;
    let lines = await_for("accounts at rest", PATIENCE, || {
        thread::sleep(LOOK);
        let Some((first, second)) = stage.line().zip(Second::line(stage)) else {
            return Ok(None);
        };
        let now = [first, second];
        let same = |(now, since): (&Line, &Line)| now.is_as(since);
        let Some(since) = since.as_ref().filter(|it| now.iter().zip(*it).all(same)) else {
            since = Some(now);
            return Ok(None);
        };
        let rested = |(now, since): (&Line, &Line)| now.time() >= since.time() + REST;
        Ok(now.iter().zip(since).all(rested).then_some(now))
    });
    lines.with_context(|| stage.output())
}

/// Waits until the files of both analyzers together have all packets that were sent, and asserts
/// that no packet is there twice. Then waits until both accounts no longer change, and returns the
/// last line and the packets of each analyzer.
fn each_once(stage: &Stage) -> Result<([Line; 2], [Vec<u64>; 2])> {
    let directories = [stage.records(), Second::records(stage)];
    let written = await_for("all packets in the files", PATIENCE, || {
        thread::sleep(BEFORE);
        let [first, second] = directories.each_ref().map(|it| files::numbers(it));
        let packets = [first?, second?];
        let truth = Truth::of(stage.sent, packets.iter().flatten().copied())?;
        Ok((truth.missed == 0).then_some((packets, truth)))
    });
    let (packets, truth) = written.with_context(|| stage.output())?;
    let lines = await_rest(stage)?;
    println!("{truth:?}, {:.1} kpps", stage.rate());
    lines.iter().for_each(|line| println!("{line}"));
    ensure!(truth.doubles == 0, "{truth:?}\n{}", stage.output());
    Ok((lines, packets))
}

/// Asserts that an analyzer's files have only packets of its own buckets.
fn assert_own_buckets(stage: &Stage, packets: &[Vec<u64>; 2]) -> Result<()> {
    let selection = stage.selection()?;
    for (place, packets) in packets.iter().enumerate() {
        let buckets = wire::buckets(selection, packets.iter().copied());
        let strange = buckets.filter(|bucket| bucket % 2 != place).count();
        ensure!(
            strange == 0,
            "analyzer {place} has {strange} packets of the other's buckets"
        );
    }
    Ok(())
}

/// Asserts that an analyzer that has run from the beginning knows exactly what came.
fn assert_exact(line: &Line, packets: &[u64]) -> Result<()> {
    let [received, removed] = ["received", "removed"].map(|name| line.number(name));
    let (received, removed) = (u64::try_from(received?)?, u64::try_from(removed?)?);
    let offered = packets.len() as u64;
    ensure!(line.is("offered", offered), "{offered} offered: {line}");
    ensure!(received - removed == offered, "{offered} offered: {line}");
    ensure!(line.is("captured", received), "{received} captured: {line}");
    ensure!(line.is("lost", 0), "{line}");
    assert_none_on_the_way(line)
}

fn assert_none_on_the_way(line: &Line) -> Result<()> {
    let lost = line.number("export")? + line.number("analyzer")?;
    ensure!(lost == 0, "{line}");
    Ok(())
}

/// A node is drained while packets come.
fn drain(stage: &mut Stage) -> Result<()> {
    stage.send();
    thread::sleep(BEFORE);
    stage.cluster(&["drain", &id(2)])?;
    stage.await_owners(&[0, 1])?;
    thread::sleep(BEFORE);
    stage.rest()?;
    let (lines, packets) = each_once(stage)?;
    assert_own_buckets(stage, &packets)?;
    for (line, packets) in lines.iter().zip(&packets) {
        assert_exact(line, packets)?;
        ensure!(line.number("removed")? > 0, "its buckets moved: {line}");
    }
    Ok(())
}

/// The second analyzer is killed while packets come, and is started again.
fn replace(stage: &mut Stage, second: Second) -> Result<Second> {
    stage.send();
    thread::sleep(2 * BEFORE);
    drop(second);
    thread::sleep(BEFORE);
    let second = Second::start(stage)?;
    thread::sleep(2 * BEFORE);
    stage.rest()?;
    let (lines, packets) = each_once(stage)?;
    assert_own_buckets(stage, &packets)?;
    assert_exact(&lines[0], &packets[0])?;
    // The account of the restarted analyzer began while packets came, so it has only bounds for the
    // number of lost packets.
    lines[1].assert_within("lost", 0)?;
    assert_none_on_the_way(&lines[1])?;
    Ok(second)
}

/// Sends packets between two pauses. Both analyzers, also the restarted one, must know exactly how
/// many packets came.
fn go_on(stage: &mut Stage) -> Result<()> {
    let (before, sent) = (await_rest(stage)?, stage.sent);
    stage.send_for(BEFORE)?;
    let (after, packets) = each_once(stage)?;
    assert_own_buckets(stage, &packets)?;
    let sum = |lines: &[Line; 2], name| -> Result<(i64, i64)> {
        let [first, second] = lines.each_ref().map(|line| line.span(name));
        let (first, second) = (first?, second?);
        Ok((first.0 + second.0, first.1 + second.1))
    };
    let came = i64::try_from(stage.sent - sent)?;
    for (name, truth) in [("offered", came), ("captured", came), ("lost", 0)] {
        let (before, after) = (sum(&before, name)?, sum(&after, name)?);
        let more = (after.0 - before.0, after.1 - before.1);
        ensure!(more == (truth, truth), "{name}: {more:?}, not {truth}");
    }
    Ok(())
}

/// Tests that take too long for `make test`.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn two_analyzers_have_each_packet_once_though_one_is_killed() {
        netns::within_new(|| {
            let mut stage = Stage::new(Engine::Etcd(1), &settings())?;
            let second = Second::start(&stage)?;
            // An account counts packets exactly only from a node's second report on. So no packets
            // are sent until the accounts no longer change.
            await_rest(&stage)?;
            drain(&mut stage)?;
            let _second = replace(&mut stage, second)?;
            go_on(&mut stage)
        })
        .unwrap();
    }
}
