//! Mirror ports that lose, are blind or wrong: the analyzer names them.

use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_testkit::netns;

use crate::stage::{Engine, Stage, id};
use crate::wire::Sender;

/// Records go to the analyzer, and are acknowledged.
const CAPTURE: &str = "mode = capture\ntransport = tcp\n";

/// Asserts that the node is named, and no other is; and that what is missing in the files is what
/// the analyzer says was lost at ports.
fn assert_named(stage: &Stage, node: usize, verdict: &str) -> Result<()> {
    let line = stage.await_rest()?;
    let truth = stage.truth()?;
    println!("{truth:?}, {:.1} kpps: {line}", stage.rate());
    for other in 0..3 {
        let found = line.verdict(&id(other)).unwrap_or_default();
        let as_wanted = match other == node {
            true => found != "sound" && found.contains(verdict),
            false => found == "sound",
        };
        ensure!(as_wanted, "node {other}, {found:?}: {line}");
    }
    ensure!(truth.doubles == 0, "{truth:?}");
    ensure!(truth.missed > 0, "the node lacks packets of its own");
    ensure!(line.is("lost", truth.missed), "{truth:?}: {line}");
    Ok(())
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_port_that_lacks_one_packet_of_a_thousand_is_named() {
    netns::within_new(|| {
        let mut stage = Stage::new(Engine::Etcd(1), CAPTURE)?;
        stage.mirror.set_loss(1, 0.001)?;
        stage.send_for(Duration::from_secs(4))?;
        assert_named(&stage, 1, "its port loses")
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_blind_port_is_named() {
    netns::within_new(|| {
        let mut stage = Stage::new(Engine::Etcd(1), CAPTURE)?;
        stage.mirror.set_loss(2, 1.0)?;
        stage.send_for(Duration::from_secs(4))?;
        assert_named(&stage, 2, "blind")
    })
    .unwrap();
}

/// What the port of another link shows are packets that nobody else sees.
#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_wrong_port_is_named() {
    netns::within_new(|| {
        let mut stage = Stage::new(Engine::Etcd(1), CAPTURE)?;
        stage.mirror.set_loss(2, 1.0)?;
        let strange = Sender::start("port2", STRANGE);
        stage.send_for(Duration::from_secs(4))?;
        strange.stop()?;
        let line = stage.await_line("a verdict", |line| {
            line.verdict(&id(2)).is_some_and(|it| it != "sound")
        })?;
        println!("{line}");
        for (node, wanted) in ["sound", "sound", "other"].into_iter().enumerate() {
            let found = line.verdict(&id(node)).unwrap_or_default();
            ensure!(found.contains(wanted), "node {node}, {found:?}: {line}");
        }
        Ok(())
    })
    .unwrap();
}

/// Numbers that the cluster's packets do not reach.
const STRANGE: u64 = 1 << 40;
