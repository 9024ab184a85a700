//! Nodes and coordinators while etcd loses members.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fanpcap_cluster::NodeEvent;
use fanpcap_testkit::{Etcd, netns};

use crate::calls::settings;
use crate::cluster::{
    announcement, await_event, await_topology, await_view, coordinator, node, topology,
};

/// The default duration of a node's lease.
const TTL: Duration = Duration::from_secs(5);

#[test]
#[ignore = "needs root: a network namespace"]
fn an_outage_that_ends_all_leases_changes_nothing_for_a_node() -> Result<()> {
    netns::within_new(|| {
        let mut etcd = Etcd::start(3, &[])?;
        let settings = settings(&etcd)?;
        let mut leader = coordinator(&settings, TTL, "one")?;
        await_view(&mut leader, "the lead", |view| view.leads)?;
        let mut node = node(&settings, TTL, 1)?;
        let first = leader.write(&topology(1), None)?;
        await_topology(&mut node, 1)?;
        node.acknowledge(first);
        await_view(&mut leader, "the acknowledgement", |view| {
            view.live
                .first()
                .is_some_and(|one| one.acknowledged == Some(first))
        })?;
        etcd.kill(0)?;
        etcd.kill(1)?;
        let begun = Instant::now();
        let events = await_event(&mut node, "the loss", |e| *e == NodeEvent::Reach(false))?;
        ensure!(events == [NodeEvent::Reach(false)], "{events:?}");
        await_view(&mut leader, "no lead", |view| !view.leads)?;
        ensure!(leader.write(&topology(2), Some(first)).is_err());
        while begun.elapsed() < Duration::from_secs(25) {
            ensure!(node.poll(Duration::from_millis(100))?.is_empty());
            ensure!(!leader.poll(Duration::from_millis(100))?.leads);
        }
        etcd.restart(0)?;
        etcd.restart(1)?;
        let events = await_event(&mut node, "etcd", |e| *e == NodeEvent::Reach(true))?;
        ensure!(events == [NodeEvent::Reach(true)], "{events:?}");
        await_view(&mut leader, "what was there before", |view| {
            let is_back = view.live.first().is_some_and(|one| {
                one.announcement == announcement(1) && one.acknowledged == Some(first)
            });
            view.leads && is_back
        })?;
        leader.write(&topology(2), Some(first))?;
        await_topology(&mut node, 2)?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_new_leader_of_etcd_costs_no_node_and_no_lead() -> Result<()> {
    netns::within_new(|| {
        let mut etcd = Etcd::start(3, &[])?;
        let settings = settings(&etcd)?;
        let mut leader = coordinator(&settings, TTL, "one")?;
        await_view(&mut leader, "the lead", |view| view.leads)?;
        let mut node = node(&settings, TTL, 1)?;
        await_view(&mut leader, "the node", |view| view.live.len() == 1)?;
        let first = leader.write(&topology(1), None)?;
        await_topology(&mut node, 1)?;
        etcd.kill(etcd.leader()?)?;
        let begun = Instant::now();
        let mut written = None;
        while begun.elapsed() < Duration::from_secs(15) {
            let view = leader.poll(Duration::from_millis(50))?;
            ensure!(view.leads && view.live.len() == 1, "{:?}", begun.elapsed());
            ensure!(
                node.poll(Duration::ZERO)?
                    .iter()
                    .all(|event| { matches!(event, NodeEvent::Topology(..)) })
            );
            if written.is_none() {
                written = leader.write(&topology(2), Some(first)).ok();
                if written.is_some() {
                    println!(
                        "the topology was written {:?} after the leader's death",
                        begun.elapsed()
                    );
                }
            }
        }
        ensure!(written.is_some());
        Ok(())
    })
}
