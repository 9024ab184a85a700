//! Nodes capture packets in turn. When the coordinator's update comes in the mirrored packets, all
//! nodes change their buckets at this point.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::process::cpu;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::mirror::WIRE;
use fanpcap_testkit::{Injector, netns};

use crate::beacons::{Process, Wire, await_more};
use crate::embedded::{coordinator, settings};
use crate::stage::Stage;

/// All processes run on one CPU. Otherwise the mirror would not pass the packets to all its ports
/// in the same order.
#[test]
#[ignore = "needs root: namespaces, XDP"]
fn nodes_change_hands_at_one_packet() {
    netns::within_new(|| {
        cpu::pin(cpu::cpus()?[0])?;
        let mut stage = Stage::bare(3)?;
        settings(
            &mut stage,
            &format!("beacon = {WIRE}\nselect = round_robin\n"),
        )?;
        let _wire = Process(Wire::read(&stage)?);
        let _coordinator = coordinator(&stage)?;
        for node in 0..3 {
            stage.start(node)?;
        }
        for node in 0..3 {
            await_more(&stage, node, "updates_total", 1)?;
            stage.read(node)?;
        }
        await_members(&stage, 3)?;
        // While packets come, node a3 gives its buckets away and gets them back. Somebody on the
        // link sends old frames of the coordinator again.
        let mut upto = 2000;
        stage.send(0..upto)?;
        for (words, node) in [(&["a3"][..], 0), (&["a3", "--undo"], 2)] {
            let begun = begun(&stage, node);
            let mut change = change(&stage, words)?;
            let first = upto;
            while upto - first < 60_000 && self::begun(&stage, node) == begun {
                stage.send(upto..upto + 500)?;
                upto += 500;
                let wire = Injector::open(WIRE)?;
                // tcpdump may be writing a frame at this moment, so reading the file may fail.
                let old = Wire::frames(&stage).unwrap_or_default();
                for frame in old.iter().rev().take(4) {
                    wire.send(frame)?;
                }
            }
            ensure!(change.wait()?.success(), "{words:?}");
            stage.send(upto..upto + 1000)?;
            upto += 1000;
            // Waits for the stable topology.
            thread::sleep(Duration::from_secs(3));
            ensure!(upto - first < 60_000, "{}", stage.said_by("coordinator"));
        }
        let each = stage.assert_once(0..upto)?;
        let said = stage.output(2);
        ensure!(!said.contains("no beacon comes"), "{said}");
        ensure!(each[2] < each[0], "{each:?}");
        Ok(())
    })
    .unwrap();
}

/// Waits until `count` nodes have joined and the topology is stable.
fn await_members(stage: &Stage, count: usize) -> Result<()> {
    let wait = await_for("a stable topology with all nodes", LIMIT, || {
        let said = stage.said_by("coordinator");
        let joined = said
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("joined="));
        let joined: usize = joined.map(|names| names.split(',').count()).sum();
        let last = said.lines().rfind(|line| line.contains(" audit "));
        let is_stable = last.is_some_and(|line| line.contains("phase=stable"));
        Ok((joined == count && is_stable).then_some(()))
    });
    wait.with_context(|| stage.said_by("coordinator"))
}

/// How many changes of a node took effect at a topology update in the stream.
fn begun(stage: &Stage, node: usize) -> usize {
    stage.output(node).matches("new owners took").count()
}

fn change(stage: &Stage, words: &[&str]) -> Result<std::process::Child> {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(stage.scratch.file("changes"))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap-cluster"));
    command.args(["cluster", "drain"]).args(words);
    command
        .arg("--config")
        .arg(stage.scratch.file("cluster.conf"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command.spawn().context("the change")
}
