//! Nodes' reports on a network that loses packets, and reports that never come.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::netns;

use crate::stage::{Engine, Stage, id, seconds};

/// How many of the [`LINES`] status lines may have the same account time as the line before.
const STILL: usize = 2;

/// How many of the analyzer's status lines are read. The analyzer prints one line a second.
const LINES: u64 = 15;

/// Between each node and the control network, this share of the packets is lost in each direction.
fn lossy(share: f64) -> Result<()> {
    let mut stage = Stage::new(Engine::Embedded, "")?;
    for node in 0..3 {
        stage.mirror.lose_control(node, share)?;
    }
    let before = stage.lines()?.len();
    stage.send_for(seconds("FANPCAP_LOSSY", LINES))?;
    let lines = stage.lines()?;
    let times: Vec<u64> = lines[before..].iter().map(|line| line.time()).collect();
    let steps = times.windows(2).map(|pair| pair[1] - pair[0]);
    let still = steps.clone().filter(|step| *step == 0).count();
    let repeated = (0..3).map(|node| repeated(&stage, node));
    let repeated: u64 = repeated.sum::<Result<_>>()?;
    println!(
        "{share} lost, {repeated} segments sent again: {} lines, {still} without a move, a move of \
         {:?} at most",
        times.len(),
        steps.max().map(Duration::from_nanos)
    );
    ensure!(repeated > 0, "no packet was lost");
    ensure!(times.len() > 10 && still <= STILL, "{times:?}");
    let named = lines[before..].iter().filter(|it| it.lacks(&id(0))).count();
    ensure!(named == 0, "reports lack in {named} lines");
    Ok(())
}

/// How many TCP segments a node has sent again.
fn repeated(stage: &Stage, node: usize) -> Result<u64> {
    let snmp = || Ok(fs::read_to_string("/proc/thread-self/net/snmp")?);
    let snmp = stage.mirror.on_node(node, snmp)?;
    let mut tcp = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, numbers) = tcp.next().zip(tcp.next()).context("counters of TCP")?;
    let mut counters = names.split(' ').zip(numbers.split(' '));
    let repeated = counters.find(|(name, _)| *name == "RetransSegs");
    Ok(repeated.context("its RetransSegs")?.1.parse()?)
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn the_account_moves_each_second_at_five_percent_loss() {
    let percent = std::env::var("FANPCAP_LOSS").ok();
    let percent: f64 = percent.and_then(|it| it.parse().ok()).unwrap_or(5.0);
    netns::within_new(|| lossy(percent / 100.0)).unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_node_whose_reports_do_not_come_is_named_until_they_come() {
    netns::within_new(|| {
        let stage = Stage::new(Engine::Embedded, "")?;
        stage.mirror.set_control(1, false)?;
        let line = stage.await_line("node 2's reports lack", |line| line.lacks(&id(1)))?;
        ensure!(!line.lacks(&id(0)) && !line.lacks(&id(2)), "{line}");
        stage.mirror.set_control(1, true)?;
        stage.await_line("reports", |line| !line.lacks(&id(1)))?;
        Ok(())
    })
    .unwrap();
}
