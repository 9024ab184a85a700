//! A tap with two legs, each of which carries one direction. Both directions of a connection are
//! always captured by the same node, also while buckets move.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_testkit::mirror::{MONITOR, MONITOR2, WIRE};
use fanpcap_testkit::{Mirror, netns};

use crate::changes::assert_merged;
use crate::stage::{Engine, Stage, id};
use crate::wire::Sender;

/// The settings of nodes with two legs.
const LEGS: &str = "device = mon, mon2\nselect = flow\n";

/// The devices of nodes with these settings.
pub(crate) fn devices(settings: &str) -> &'static [&'static str] {
    match settings.contains(LEGS) {
        true => &[MONITOR, MONITOR2],
        false => &[MONITOR],
    }
}

/// Adds three nodes with these devices.
pub(crate) fn add_nodes(mirror: &mut Mirror, devices: &[&str]) -> Result<()> {
    for _ in 0..3 {
        mirror.add()?;
    }
    match devices {
        [_] => Ok(()),
        _ => mirror.add_leg(),
    }
}

/// A sender for these devices. It numbers its packets from `first` on.
pub(crate) fn sender(devices: &[&str], first: u64, rate: u64) -> Sender {
    match devices {
        [_] => Sender::start(WIRE, first, rate),
        _ => Sender::of_two_legs(first, rate),
    }
}

/// Drains a node and restores it, while packets come. Returns the numbers of the packets that came
/// while no buckets moved.
fn drain(stage: &mut Stage) -> Result<Vec<Range<u64>>> {
    let name = id(1);
    let pause = || thread::sleep(Duration::from_millis(700));
    let next = |stage: &Stage| stage.sender.as_ref().map_or(0, Sender::next);
    stage.send();
    pause();
    let first = 0..next(stage);
    stage.cluster(&["drain", &name])?;
    stage.await_owners(&[0, 2])?;
    let drained = next(stage);
    pause();
    let drained = drained..next(stage);
    stage.cluster(&["drain", "--undo", &name])?;
    stage.await_owners(&[0, 1, 2])?;
    let last = next(stage);
    pause();
    let sent = stage.rest()?;
    Ok(vec![first, drained, last..sent])
}

/// For each packet, the nodes that captured it, one bit for each node.
fn nodes(stage: &Stage) -> Result<Vec<u8>> {
    let mut nodes = vec![0_u8; usize::try_from(stage.sent)?];
    for (at, reader) in stage.readers.iter().enumerate() {
        let (node, leg) = (at / 2, at % 2);
        for number in reader.numbers() {
            ensure!(number % 2 == leg as u64, "{number} came by the other leg");
            nodes[usize::try_from(number)?] |= 1 << node;
        }
    }
    Ok(nodes)
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn both_directions_of_each_connection_are_at_one_node_through_a_drain() {
    netns::within_new(|| {
        let mut stage = Stage::new(Engine::Embedded, LEGS)?;
        let rests = drain(&mut stage)?;
        let line = stage.await_rest()?;
        let truth = stage.truth(&line)?;
        println!("{rests:?}, {truth:?}, {:.1} kpps", stage.rate());
        ensure!(truth.missed == 0, "{truth:?}: {line}\n{}", stage.output());
        let captured = truth.captured + truth.doubles;
        ensure!(line.is("captured", captured), "{captured} captured: {line}");
        line.assert_within("doubles", truth.doubles)?;
        let nodes = nodes(&stage)?;
        for numbers in rests {
            let begin = usize::try_from(numbers.start)?.next_multiple_of(2);
            let end = usize::try_from(numbers.end)? & !1;
            ensure!(
                end - begin > 1000,
                "{begin}..{end}: packets of too short a time"
            );
            for (pair, has) in nodes[begin..end].chunks(2).enumerate() {
                let is_one = has[0].is_power_of_two() && has[0] == has[1];
                ensure!(
                    is_one,
                    "{}: there at {}, back at {}",
                    begin + 2 * pair,
                    has[0],
                    has[1]
                );
            }
        }
        assert_merged(&stage, truth)
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn an_analyzers_files_have_each_packet_of_both_legs_once_through_a_drain() {
    netns::within_new(|| {
        let settings = format!("{LEGS}mode = capture\n");
        let mut stage = Stage::new(Engine::Embedded, &settings)?;
        drain(&mut stage)?;
        let line = stage.await_rest()?;
        let truth = stage.truth(&line)?;
        println!("{truth:?}, {:.1} kpps: {line}", stage.rate());
        let is_each_once = (truth.captured, truth.doubles) == (stage.sent, 0);
        ensure!(is_each_once, "{truth:?}: {line}\n{}", stage.output());
        ensure!(
            line.is("offered", stage.sent) && line.is("lost", 0),
            "{line}"
        );
        let [received, removed] = ["received", "removed"].map(|name| line.number(name));
        ensure!(received? - removed? == i64::try_from(stage.sent)?, "{line}");
        Ok(())
    })
    .unwrap();
}
