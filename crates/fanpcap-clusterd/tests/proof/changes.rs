//! Planned changes: nodes are drained, leave, join and get other weights. No packet is missed.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::netns;

use crate::account::{Line, Truth};
use crate::files;
use crate::owners::Owners;
use crate::stage::{Engine, Stage, id};

/// A planned change of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Drain,
    Restore,
    Heavy,
    Light,
    Leave,
    Join,
}

const COURSE: [Change; 6] = [
    Change::Drain,
    Change::Restore,
    Change::Heavy,
    Change::Light,
    Change::Leave,
    Change::Join,
];

/// Because of rounding, up to this many more buckets may move than the nodes' shares require.
const ROUNDING: usize = 3;

/// How many changes were made, and how many buckets moved.
#[derive(Clone, Copy, Default, Debug)]
struct Moves {
    changes: usize,
    buckets: usize,
    /// How many more buckets than necessary a change moved: the maximum over all changes.
    excess: usize,
}

/// How many changes are made: `FANPCAP_RUNS`, or one change of each kind if it is not set.
fn runs() -> usize {
    let set = std::env::var("FANPCAP_RUNS").ok();
    set.and_then(|set| set.parse().ok()).unwrap_or(COURSE.len())
}

impl Change {
    /// Makes the change, and waits until it is complete. Returns the new owners.
    fn happen(self, stage: &mut Stage, node: usize) -> Result<Owners> {
        let name = id(node);
        let others: Vec<usize> = (0..3).filter(|other| *other != node).collect();
        let share = |owners: &Owners| count(owners, &name);
        match self {
            Self::Drain => {
                stage.cluster(&["drain", &name])?;
                stage.await_owners(&others)
            }
            Self::Restore => {
                stage.cluster(&["drain", "--undo", &name])?;
                stage.await_owners(&[0, 1, 2])
            }
            Self::Heavy => {
                stage.cluster(&["weight", &name, "2"])?;
                stage.await_topology(|owners| share(owners).abs_diff(2048) <= ROUNDING)
            }
            Self::Light => {
                stage.cluster(&["weight", &name])?;
                stage.await_topology(|owners| share(owners).abs_diff(1365) <= ROUNDING)
            }
            Self::Leave => {
                stage.cluster(&["drain", &name])?;
                let owners = stage.await_owners(&others)?;
                stage.stop(node)?;
                Ok(owners)
            }
            Self::Join => {
                stage.cluster(&["drain", "--undo", &name])?;
                stage.start(node)?;
                stage.await_owners(&[0, 1, 2])
            }
        }
    }

    /// How many buckets the change must move: the node's share grows or shrinks by so many buckets.
    fn least(self) -> usize {
        match self {
            Self::Drain | Self::Restore | Self::Leave | Self::Join => 1365,
            Self::Heavy | Self::Light => 2048 - 1365,
        }
    }
}

fn count(owners: &Owners, node: &str) -> usize {
    let mine = |owner: &&Option<String>| owner.as_deref() == Some(node);
    owners.iter().filter(mine).count()
}

/// Makes changes while packets come: two changes of a node, then two of the next node.
fn change(stage: &mut Stage, changes: usize) -> Result<Moves> {
    let mut moves = Moves::default();
    let mut owners = stage.await_owners(&[0, 1, 2])?;
    stage.send();
    thread::sleep(Duration::from_millis(500));
    for turn in 0..changes.next_multiple_of(2) {
        let change = COURSE[turn % COURSE.len()];
        let node = turn / 2 % 3;
        let now = change.happen(stage, node)?;
        let moved = owners.iter().zip(&now).filter(|(old, new)| old != new);
        let moved = moved.count();
        let excess = moved.saturating_sub(change.least());
        ensure!(excess <= ROUNDING, "{change:?}: {moved} buckets moved");
        moves.changes += 1;
        moves.buckets += moved;
        moves.excess = moves.excess.max(excess);
        owners = now;
    }
    thread::sleep(Duration::from_millis(500));
    stage.rest()?;
    Ok(moves)
}

/// Asserts that each node has captured packets.
fn assert_shared(line: &Line) -> Result<()> {
    let captured = |node: usize| line.of_node(&id(node), "captured");
    let all = (0..3).all(|node| captured(node) > Some(0));
    ensure!(all, "a node captured nothing: {line}");
    Ok(())
}

/// In distribution mode, the tcpdumps on the nodes together capture all packets. `fanpcap cluster
/// merge` removes the doubles from the tcpdumps' files.
fn distribution(engine: Engine) -> Result<()> {
    let mut stage = Stage::new(engine, "")?;
    let moves = change(&mut stage, runs())?;
    let line = stage.await_rest()?;
    let truth = stage.truth(&line)?;
    println!("{moves:?}, {truth:?}, {:.1} kpps", stage.rate());
    ensure!(truth.missed == 0, "{truth:?}: {line}\n{}", stage.output());
    ensure!(truth.doubles > 0, "no packet came while buckets moved");
    assert_shared(&line)?;
    // The nodes' counts contain exactly the packets that the tcpdumps captured.
    let captured = truth.captured + truth.doubles;
    ensure!(line.is("captured", captured), "{captured} captured: {line}");
    line.assert_within("doubles", truth.doubles)?;
    line.assert_within("lost", truth.missed)?;
    assert_merged(&stage, truth)
}

/// Asserts that `fanpcap cluster merge` of the tcpdumps' files leaves each packet once, and that
/// the command prints the right counts.
pub(crate) fn assert_merged(stage: &Stage, truth: Truth) -> Result<()> {
    let merged = stage.scratch.file("merged.pcap");
    let of_node = |node| stage.devices.iter().map(move |it| stage.kept(node, it));
    let mut paths: Vec<_> = (0..3).flat_map(of_node).collect();
    paths.push(merged.clone());
    let names: Option<Vec<_>> = paths.iter().map(|path| path.to_str()).collect();
    let names = names.context("a path that is no UTF-8")?;
    let (to, from) = names.split_last().context("no paths")?;
    stage.cluster(&[&["merge"], from, &["--output", to]].concat())?;
    let left = Truth::of(stage.sent, files::numbers_of_pcap(&merged)?)?;
    ensure!(
        (left.captured, left.doubles, left.missed) == (stage.sent, 0, 0),
        "{truth:?} was merged to {left:?}"
    );
    let said = fs::read_to_string(stage.scratch.file("operator.log"))?;
    let last = said.lines().last().unwrap_or_default();
    let (written, removed) = (stage.sent, truth.doubles);
    let wanted = format!("{written} packets written, {removed} doubles removed");
    ensure!(last == wanted, "{wanted:?}, but merge said {last:?}");
    Ok(())
}

/// Capture mode: the analyzer's files have each packet exactly once.
fn capture(engine: Engine) -> Result<()> {
    let settings = "mode = capture\ntransport = tcp\n";
    let mut stage = Stage::new(engine, settings)?;
    let moves = change(&mut stage, runs())?;
    let line = stage.await_rest()?;
    let truth = stage.truth(&line)?;
    println!("{moves:?}, {truth:?}, {:.1} kpps: {line}", stage.rate());
    ensure!(
        (truth.missed, truth.doubles) == (0, 0),
        "{truth:?}: {line}\n{}",
        stage.output()
    );
    ensure!(line.is("lost", 0), "{line}");
    let [received, removed] = ["received", "removed"].map(|name| line.number(name));
    let (received, removed) = (received?, removed?);
    ensure!(removed > 0, "no packet came while buckets moved: {line}");
    assert_shared(&line)?;
    ensure!(
        received - removed == i64::try_from(truth.offered)?,
        "{line}"
    );
    line.assert_within("doubles", u64::try_from(removed)?)
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn planned_changes_miss_nothing_and_doubles_are_counted_and_merged() {
    netns::within_new(|| distribution(Engine::Embedded)).unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn planned_changes_of_etcd_give_the_analyzer_each_packet_once() {
    netns::within_new(|| capture(Engine::Etcd(1))).unwrap();
}

/// Tests that take too long for `make test`.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn planned_changes_of_etcd_miss_nothing_either_and_doubles_are_counted_and_merged() {
        netns::within_new(|| distribution(Engine::Etcd(1))).unwrap();
    }

    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn planned_changes_give_the_analyzer_each_packet_once() {
        netns::within_new(|| capture(Engine::Embedded)).unwrap();
    }
}
