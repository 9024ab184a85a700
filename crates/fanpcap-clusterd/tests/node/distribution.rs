//! In distribution mode, a node's tcpdump gets the packets that the node's selection passes on.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::link;
use fanpcap_testkit::mirror::MONITOR;
use fanpcap_testkit::{Direction, netns};

use crate::stage::{SHARE, Stage};

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn each_packet_is_captured_by_one_node() {
    netns::within_new(|| {
        let stage = Stage::new(3)?;
        stage.send(0..6000)?;
        let each = stage.assert_once(0..6000)?;
        for count in &each {
            ensure!(SHARE.contains(count), "{each:?}");
        }
        for (node, count) in each.iter().enumerate() {
            // The node updates its metrics every second.
            stage.await_metric(node, "seen_packets_total", 6000)?;
            let [seen, captured] = ["seen", "captured"]
                .map(|what| stage.metric(node, &format!("{what}_packets_total")));
            let (seen, captured) = (seen?, captured?);
            ensure!(
                (seen, captured) == (6000, *count as u64),
                "{node}: {seen}, {captured}"
            );
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn each_connection_is_whole_at_one_node_where_no_selection_is_set() {
    netns::within_new(|| {
        let mut stage = Stage::bare(3)?;
        let nodes = "nodes = a1, a2, a3\ninitial = 77\n";
        stage.replace_settings(&format!("cluster = test\nengine = fixed\n{nodes}"))?;
        stage.begin()?;
        stage.send(0..2000)?;
        stage.assert_once(0..2000)?;
        let (node_of, mut found) = (stage.nodes(), BTreeMap::new());
        for frame in Stage::frames(0..2000)? {
            let (nodes, directions): &mut (BTreeSet<usize>, BTreeSet<bool>) =
                found.entry(frame.flow.key()).or_default();
            nodes.insert(node_of[&frame.sequence]);
            directions.insert(frame.direction == Direction::Request);
        }
        for (flow, (nodes, directions)) in &found {
            ensure!(directions.len() == 2, "{flow:?} has one direction");
            ensure!(nodes.len() == 1, "{flow:?} is at the nodes {nodes:?}");
        }
        let busy: BTreeSet<usize> = node_of.into_values().collect();
        ensure!(found.len() == 32 && busy.len() == 3, "{busy:?}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn an_agent_that_is_killed_changes_nothing_and_the_next_takes_over() {
    netns::within_new(|| {
        let mut stage = Stage::new(3)?;
        let before = program(&stage, 1)?;
        stage.send(0..1000)?;
        stage.kill(1)?;
        stage.send(1000..3000)?;
        ensure!(program(&stage, 1)? == before, "the selection stays");
        stage.start(1)?;
        stage.await_output(
            1,
            "still selects by topology 1, which an earlier agent has loaded",
        )?;
        stage.await_output(1, "switched to topology 1 (epoch 1)")?;
        stage.send(3000..5000)?;
        ensure!(program(&stage, 1)? == before, "the BPF program stays");
        for _ in 0..3 {
            stage.kill(1)?;
            stage.start(1)?;
            stage.send(0..0)?;
        }
        stage.send(5000..6000)?;
        stage.assert_once(0..6000)?;
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn detached_a_device_is_as_before() {
    netns::within_new(|| {
        let mut stage = Stage::new(2)?;
        let busy = stage.run(0, &["-i", MONITOR, "--detach"])?;
        let said = String::from_utf8_lossy(&busy.stderr).into_owned();
        ensure!(
            !busy.status.success() && said.contains("another 'fanpcap node' runs"),
            "{said}"
        );
        ensure!(promiscuity(&stage, 0)? == 2, "the agent's and tcpdump's");
        stage.kill(0)?;
        let done = stage.run(0, &["-i", MONITOR, "--detach"])?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        ensure!(
            done.status.success() && said.contains("no selection any more"),
            "{said}"
        );
        ensure!(program(&stage, 0)?.is_none(), "no BPF program is left");
        ensure!(promiscuity(&stage, 0)? == 1, "tcpdump's");
        stage.send(0..500)?;
        let (found, each) = stage.captured()?;
        ensure!(each[0] == 500 && found.len() == 500, "{each:?}");
        let again = stage.run(0, &["-i", MONITOR, "--detach"])?;
        let said = String::from_utf8_lossy(&again.stderr).into_owned();
        ensure!(
            again.status.success() && said.contains("had no selection"),
            "{said}"
        );
        Ok(())
    })
    .unwrap();
}

fn program(stage: &Stage, node: usize) -> Result<Option<u32>> {
    stage.mirror.on_node(node, || {
        let index = interface::index(MONITOR).unwrap_or(0);
        Ok(link::get(index)?.xdp.map(|xdp| xdp.program))
    })
}

fn promiscuity(stage: &Stage, node: usize) -> Result<u32> {
    stage.mirror.on_node(node, || {
        let index = interface::index(MONITOR).unwrap_or(0);
        Ok(link::get(index)?.promiscuity)
    })
}
