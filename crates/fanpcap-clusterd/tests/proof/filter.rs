//! A filter for the cluster: nodes drop and count packets that do not pass. The filter is also
//! replaced while packets come.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::{await_for, netns};
use serde_json::Value;

use crate::account::Line;
use crate::stage::{Engine, LOOK, PATIENCE, Stage, id};

/// A packet's number modulo 4 is its class. The first filter passes the classes 0 and 1.
const FIRST: &str = "udp[8] & 3 < 2";
/// The second filter passes the classes 1 and 2. So class 1 always passes, and class 3 never
/// passes.
const SECOND: &str = "udp[8] & 3 = 1 or udp[8] & 3 = 2";

/// How long packets come before the filter is replaced, and how long after it.
const BEFORE: Duration = Duration::from_millis(500);

/// At least this many packets come before the filter is replaced, and at least this many after it.
const SURE: u64 = 1000;

/// Packets that the nodes' filters dropped, according to their metrics.
fn filtered(stage: &Stage) -> Result<u64> {
    let of = |node: usize| {
        let metrics = fs::read_to_string(stage.scratch.file(&format!("node{node}.prom")))?;
        let mut lines = metrics.lines();
        let line = lines.find(|line| line.starts_with("fanpcap_node_filtered_packets_total{"));
        let (_, number) = line.and_then(|it| it.rsplit_once(' ')).context("metrics")?;
        Ok(number.parse::<u64>()?)
    };
    (0..3).map(of).sum()
}

/// Starts the coordinator again with the second filter, and waits until all nodes use it.
fn replace(stage: &mut Stage) -> Result<()> {
    let file = stage.scratch.file("cluster.conf");
    let settings = fs::read_to_string(&file)?.replace(FIRST, SECOND);
    fs::write(&file, settings)?;
    stage.kill_coordinator()?;
    stage.start_coordinator()?;
    await_for("the other filter", PATIENCE, || {
        thread::sleep(LOOK);
        let topology = stage.cluster(&["topology", "--json"]).unwrap_or_default();
        let topology: Value = serde_json::from_str(&topology).unwrap_or_default();
        Ok((topology["filter"] == SECOND).then_some(()))
    })
    .with_context(|| stage.output())?;
    stage.await_owners(&[0, 1, 2]).map(drop)
}

/// Waits until each packet is accounted for: it was captured or filtered. Returns how often each
/// packet was captured.
fn each(stage: &Stage) -> Result<(Line, Vec<u64>)> {
    let line = stage.await_rest()?;
    let accounted = await_for("all packets in tcpdumps and metrics", PATIENCE, || {
        thread::sleep(LOOK);
        let (captured, filtered) = (stage.numbers(), filtered(stage)?);
        let all = captured.len() as u64 + filtered;
        println!(
            "{} sent, {filtered} filtered, {} captured",
            stage.sent,
            captured.len()
        );
        Ok((all >= stage.sent).then_some((captured, all)))
    });
    let (captured, all) = accounted.with_context(|| stage.output())?;
    ensure!(all == stage.sent, "{all} of {}: {line}", stage.sent);
    let mut times = BTreeMap::new();
    for number in captured {
        *times.entry(number).or_insert(0) += 1;
    }
    let times = (0..stage.sent).map(|number| times.get(&number).copied().unwrap_or(0));
    // The account counts all of a node's packets as captured, even if the filter drops them.
    for (name, truth) in [
        ("offered", stage.sent),
        ("captured", stage.sent),
        ("lost", 0),
    ] {
        ensure!(line.is(name, truth), "{name} is {truth}: {line}");
    }
    ensure!(line.is("doubles", 0), "{line}");
    Ok((line, times.collect()))
}

/// Asserts how often each of the packets `from..to` was captured. `wanted` returns the right count
/// for a packet's class, or `None` if 0 and 1 are both right.
fn assert_times(times: &[u64], from: u64, to: u64, wanted: impl Fn(u64) -> Option<u64>) {
    let all = (0..).zip(times.iter().copied());
    for (number, found) in all.filter(|(number, _)| (from..to).contains(number)) {
        let wanted = wanted(number % 4);
        assert!(
            wanted.is_none_or(|wanted| wanted == found) && found <= 1,
            "packet {number} of {to} was captured {found} times, not {wanted:?}"
        );
    }
}

fn by_engine(engine: Engine) -> Result<()> {
    let first = |class| Some(u64::from(class < 2));
    let second = |class| Some(u64::from(class == 1 || class == 2));
    let mut stage = Stage::new(engine, &format!("filter = {FIRST}\n"))?;
    stage.send_for(BEFORE)?;
    let (_, times) = each(&stage)?;
    let before = stage.sent;
    assert_times(&times, 0, before, first);
    stage.send();
    thread::sleep(BEFORE);
    replace(&mut stage)?;
    thread::sleep(BEFORE);
    stage.rest()?;
    let (line, times) = each(&stage)?;
    let end = stage.sent;
    assert_times(&times, before, before + SURE, first);
    assert_times(&times, before, end, |class| match class {
        1 => Some(1),
        3 => Some(0),
        _ => None,
    });
    assert_times(&times, end - SURE, end, second);
    let seen = (0..3).map(|node| line.of_node(&id(node), "captured"));
    ensure!(seen.flatten().all(|it| it > 0), "{line}");
    println!("{end} packets, {:.1} kpps: {line}", stage.rate());
    Ok(())
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_filter_and_its_successor_drop_what_they_say_and_no_other_packet() {
    netns::within_new(|| by_engine(Engine::Embedded)).unwrap();
}

/// Tests that take too long for `make test`.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn filters_of_etcd_drop_what_they_say_and_no_other_packet() {
        netns::within_new(|| by_engine(Engine::Etcd(1))).unwrap();
    }
}
