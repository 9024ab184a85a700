//! The analyzer reports mirror ports that lose packets, are blind, or show a wrong link.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_testkit::netns;

use crate::account::Line;
use crate::stage::{Engine, Stage, id};
use crate::wire::Sender;

/// Nodes send their packets to the analyzer by TCP, so the analyzer acknowledges them.
const CAPTURE: &str = "mode = capture\ntransport = tcp\n";

/// Waits until the analyzer reports this verdict on the node's port. Asserts that the number of
/// packets missing in the files is the number that the analyzer reports as lost. On a busy machine
/// other ports may lose packets too, and are then reported too.
fn assert_named(stage: &Stage, node: usize, verdict: &str) -> Result<Line> {
    let named = |line: &Line, node| {
        let found = line.verdict(&id(node));
        found.is_some_and(|found| found.contains(verdict))
    };
    stage.await_line(verdict, |line| named(line, node))?;
    let line = stage.await_rest()?;
    let truth = stage.truth(&line)?;
    println!("{truth:?}, {:.1} kpps: {line}", stage.rate());
    ensure!(truth.doubles == 0, "{truth:?}");
    ensure!(truth.missed > 0, "packets must be missing in the files");
    ensure!(line.is("lost", truth.missed), "{truth:?}: {line}");
    Ok(line)
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_blind_port_is_named() {
    netns::within_new(|| {
        let mut stage = Stage::new(Engine::Etcd(1), CAPTURE)?;
        stage.mirror.set_loss(2, 1.0)?;
        stage.send_for(Duration::from_secs(2))?;
        assert_named(&stage, 2, "blind").map(drop)
    })
    .unwrap();
}

/// A number that is greater than the numbers of all packets of the cluster.
const STRANGE: u64 = 1 << 40;

/// Tests that take too long for `make test`.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn a_port_that_lacks_one_packet_of_a_thousand_is_named() {
        netns::within_new(|| {
            let mut stage = Stage::new(Engine::Etcd(1), CAPTURE)?;
            stage.mirror.set_loss(1, 0.001)?;
            // Between two pauses in the traffic, the analyzer knows exactly how many packets each
            // port lost.
            let before = stage.mirror.forwarded(1)?;
            stage.send_for(Duration::from_secs(4))?;
            let line = assert_named(&stage, 1, "its port loses")?;
            let lacked = stage.sent - (stage.mirror.forwarded(1)? - before);
            let said = line.of_node(&id(1), "mirror");
            ensure!(said == Some(lacked.try_into()?), "{lacked} lacked: {line}");
            Ok(())
        })
        .unwrap();
    }

    /// A port of another link shows packets that no other node sees. In this test these packets
    /// belong to a few flows, so they fall into a few buckets, however many packets there are.
    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn a_wrong_port_is_named() {
        netns::within_new(|| {
            let mut stage = Stage::new(Engine::Etcd(1), CAPTURE)?;
            stage.mirror.set_loss(2, 1.0)?;
            stage.send();
            let strange = Sender::of_few("port2", STRANGE, 16);
            thread::sleep(Duration::from_secs(2));
            strange.stop()?;
            stage.rest()?;
            let is_other = |line: &Line, node| {
                let found = line.verdict(&id(node));
                found.is_some_and(|found| found.contains("other traffic"))
            };
            let line = stage.await_line("a wrong port", |line| is_other(line, 2))?;
            println!("{line}");
            ensure!(!is_other(&line, 0) && !is_other(&line, 1), "{line}");
            Ok(())
        })
        .unwrap();
    }
}
