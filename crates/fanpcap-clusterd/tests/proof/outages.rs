//! The coordination engine or the coordinator fails. Then no buckets move, and no packet is missed.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::{await_for, netns};

use crate::deaths::{QUICK, assert_accounted};
use crate::stage::{Engine, LOOK, PATIENCE, Stage, id, seconds};

/// Records go to the analyzer, which acknowledges them.
const CAPTURE: &str = "mode = capture\ntransport = tcp\n";

/// How long traffic runs before an event, and how long it continues after the event.
const BEFORE: Duration = Duration::from_secs(1);

/// Asserts that the files have each packet exactly once.
fn assert_once(stage: &Stage) -> Result<()> {
    let line = stage.await_rest()?;
    let truth = stage.truth(&line)?;
    println!("{truth:?}, {:.1} kpps: {line}", stage.rate());
    ensure!(
        (truth.missed, truth.doubles) == (0, 0) && line.is("lost", 0),
        "{truth:?}: {line}\n{}",
        stage.output()
    );
    Ok(())
}

/// Kills etcd's leader, then another member, and starts both again.
fn without_etcd(stage: &mut Stage, outage: Duration) -> Result<()> {
    let etcd = stage.etcd.as_mut().context("an etcd")?;
    let first = etcd.leader()?;
    etcd.kill(first)?;
    let others: Vec<usize> = (0..3).filter(|member| *member != first).collect();
    etcd.await_leader_of(&others)?;
    thread::sleep(BEFORE);
    etcd.kill(others[0])?;
    thread::sleep(outage);
    etcd.restart(first)?;
    etcd.restart(others[0])?;
    etcd.await_leader()
}

/// A node is cut off. Its records come late, and belong to a topology that was replaced. Other
/// nodes have captured the same packets.
fn cut_off(engine: Engine, more: &str) -> Result<()> {
    let mut stage = Stage::new(engine, &format!("{CAPTURE}{more}"))?;
    stage.send();
    thread::sleep(BEFORE / 2);
    stage.mirror.set_control(1, false)?;
    stage.await_new_owners(1)?;
    stage.await_owners(&[0, 2])?;
    thread::sleep(seconds("FANPCAP_CUT", 1));
    stage.mirror.set_control(1, true)?;
    stage.await_owners(&[0, 1, 2])?;
    thread::sleep(BEFORE / 2);
    stage.rest()?;
    let (line, _) = assert_accounted(&stage)?;
    ensure!(
        line.number("fenced")? > 0,
        "the node's records are stale: {line}"
    );
    Ok(())
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_node_that_was_cut_off_comes_back_and_no_packet_is_there_twice() {
    netns::within_new(|| cut_off(Engine::Embedded, QUICK)).unwrap();
}

/// Stops the agents of two nodes, and waits until their leases have ended.
///
/// Each agent renews its lease at its own times. A node whose lease ends 100 ms before the other
/// node's lease would be the only one that counts as dead. When etcd starts, it gives all leases
/// their full time again ([`fanpcap_etcd::Client::grant`]). So after a restart of etcd the two
/// leases end at the same time.
fn hang(stage: &mut Stage, nodes: [usize; 2]) -> Result<()> {
    for node in nodes {
        stage.signal(node, "STOP")?;
    }
    let etcd = stage.etcd.as_mut().context("an etcd")?;
    etcd.kill(0)?;
    etcd.restart(0)?;
    etcd.await_leader()?;
    let begun = Instant::now();
    let [one, other] = nodes.map(id);
    let line = format!("nodes {one}, {other} are gone at once");
    await_for(&line, PATIENCE, || {
        thread::sleep(LOOK);
        Ok(stage.output().contains(&line).then_some(()))
    })
    .with_context(|| stage.output())?;
    println!(
        "the coordinator reported that both nodes are gone, after {:?}",
        begun.elapsed()
    );
    Ok(())
}

/// Asserts that the topology still has the number `before`.
fn assert_unchanged(stage: &Stage, before: u64) -> Result<()> {
    let (_, after) = stage.owners()?;
    ensure!(
        before == after,
        "topology {before}, then {after}\n{}",
        stage.output()
    );
    Ok(())
}

/// Tests that take too long for `make test`.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn etcds_leader_then_its_quorum_then_the_coordinator_die_and_nothing_is_missed() {
        netns::within_new(|| {
            let mut stage = Stage::new(Engine::Etcd(3), CAPTURE)?;
            stage.start_coordinator()?;
            let (_, before) = stage.owners()?;
            stage.send();
            thread::sleep(BEFORE);
            let outage = seconds("FANPCAP_OUTAGE", 7);
            without_etcd(&mut stage, outage)?;
            let owners = stage.await_owners(&[0, 1, 2])?;
            assert_unchanged(&stage, before)?;
            ensure!(owners.iter().all(Option::is_some), "all buckets");
            let killed = Instant::now();
            let dead = stage.kill_coordinator()?;
            await_for("the standby to lead", PATIENCE, || {
                thread::sleep(LOOK);
                let leader = stage.leader().unwrap_or(None);
                Ok(leader.filter(|name| *name != dead))
            })?;
            println!("the standby leads after {:?}", killed.elapsed());
            thread::sleep(BEFORE);
            stage.rest()?;
            assert_once(&stage)
        })
        .unwrap();
    }

    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn a_node_that_was_cut_off_from_etcd_does_so_too() {
        netns::within_new(|| cut_off(Engine::Etcd(1), "")).unwrap();
    }

    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn two_of_three_agents_hang_and_nothing_changes_or_is_missed() {
        netns::within_new(|| {
            let mut stage = Stage::new(Engine::Etcd(1), "")?;
            let (_, before) = stage.owners()?;
            stage.send();
            thread::sleep(BEFORE);
            hang(&mut stage, [0, 1])?;
            thread::sleep(seconds("FANPCAP_HANG", 3));
            assert_unchanged(&stage, before)?;
            let status = stage.cluster(&["status"])?;
            for node in [0, 1].map(id) {
                let silent = format!("node {node} is silent and has buckets");
                ensure!(status.contains(&silent), "{status}");
            }
            for node in [0, 1] {
                stage.signal(node, "CONT")?;
            }
            // All nodes acknowledge the present topology again.
            stage.await_owners(&[0, 1, 2])?;
            thread::sleep(BEFORE);
            assert_unchanged(&stage, before)?;
            stage.rest()?;
            assert_once(&stage)
        })
        .unwrap();
    }
}
