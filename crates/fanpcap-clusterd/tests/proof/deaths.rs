//! Processes and machines die or hang. The analyzer must report as lost exactly the packets that
//! such a failure loses.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::{await_for, netns};

use crate::account::{Line, Truth};
use crate::files;
use crate::stage::{Engine, PATIENCE, Stage, id, seconds};

/// Records go to the analyzer, which acknowledges them.
const CAPTURE: &str = "mode = capture\ntransport = tcp\n";

/// A silent node is offline after 3 s.
pub(crate) const QUICK: &str = "heartbeat = 500ms\noffline = 3s\n";

/// How long a test waits before an event, and after it.
const BEFORE: Duration = Duration::from_secs(1);

/// The least and the greatest number of packets that, according to the analyzer, were lost by
/// nodes, on the way to the analyzer, and at its disk. Records that were lost on the way may be
/// copies of packets that another node captured too. So the lower bound leaves out as many of these
/// records as may be copies.
pub(crate) fn explained(line: &Line) -> Result<(i64, i64)> {
    let (least, most) = line.span("lost")?;
    let others = line.number("export")? + line.number("analyzer")?;
    let (captured, offered) = (line.span("captured")?.1, line.span("offered")?.0);
    let spare = (captured - (offered - most)).clamp(0, others);
    Ok((least + others - spare, most + others))
}

/// Asserts that each packet that is in the files twice was counted as unchecked, and that as many
/// packets are missing as the analyzer reports as lost.
pub(crate) fn assert_accounted(stage: &Stage) -> Result<(Line, Truth)> {
    let line = stage.await_rest()?;
    let truth = stage.truth(&line)?;
    println!("{truth:?}, {:.1} kpps: {line}", stage.rate());
    let (least, most) = explained(&line)?;
    let missed = i64::try_from(truth.missed)?;
    // The analyzer counts records as unchecked only if the machine is too slow for the traffic.
    let unchecked = u64::try_from(line.number("unchecked")?)?;
    ensure!(
        truth.doubles <= unchecked,
        "{truth:?}: {line}\n{}{}",
        files::doubles(&stage.records())?,
        stage.output()
    );
    ensure!(
        (least..=most).contains(&missed),
        "{missed} missed, {least}..{most} explained: {truth:?}: {line}\n{}",
        stage.output()
    );
    Ok((line, truth))
}

/// A killed agent loses the records that it had read but not sent. Records that come while no agent
/// runs wait in the ring.
#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_killed_agents_packets_are_in_its_ring_or_accounted() {
    netns::within_new(|| {
        let mut stage = Stage::new(Engine::Etcd(1), CAPTURE)?;
        stage.kill(0)?;
        stage.send_for(BEFORE)?;
        stage.start(0)?;
        let (line, truth) = assert_accounted(&stage)?;
        let lost = line.of_node(&id(0), "export");
        ensure!(lost == Some(0), "{truth:?}: {line}\n{}", stage.output());
        stage.send();
        thread::sleep(BEFORE);
        stage.kill(0)?;
        stage.start(0)?;
        thread::sleep(BEFORE);
        stage.rest()?;
        let (line, _) = assert_accounted(&stage)?;
        ensure!(line.number("analyzer")? == 0, "{line}");
        Ok(())
    })
    .unwrap();
}

fn hang(engine: Engine, more: &str) -> Result<()> {
    let mut stage = Stage::new(engine, &format!("{CAPTURE}{more}"))?;
    stage.send();
    thread::sleep(BEFORE / 2);
    stage.signal(1, "STOP")?;
    stage.await_new_owners(1)?;
    stage.await_owners(&[0, 2])?;
    thread::sleep(seconds("FANPCAP_HANG", 1));
    stage.signal(1, "CONT")?;
    stage.await_owners(&[0, 1, 2])?;
    thread::sleep(BEFORE / 2);
    stage.rest()?;
    let (line, _) = assert_accounted(&stage)?;
    let fenced = line.number("fenced")?;
    ensure!(fenced > 0, "its ring had stale records: {line}");
    Ok(())
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn an_agent_of_etcd_that_hangs_does_so_too() {
    netns::within_new(|| hang(Engine::Etcd(1), "")).unwrap();
}

/// A node's machine dies: its agent is killed, and its port is blind.
fn dead_machine(engine: Engine, more: &str) -> Result<()> {
    let mut stage = Stage::new(engine, &format!("{CAPTURE}{more}"))?;
    stage.send();
    thread::sleep(BEFORE);
    let killed = Instant::now();
    stage.kill(1)?;
    stage.mirror.set_loss(1, 1.0)?;
    let took = stage.await_new_owners(1)?.duration_since(killed);
    thread::sleep(BEFORE);
    stage.rest()?;
    println!("{engine:?}: new owners after {took:?}");
    let (_, truth) = assert_accounted(&stage)?;
    ensure!(truth.missed > 0, "the dead node had packets");
    Ok(())
}

/// With `FANPCAP_OFFLINE=15`, the test uses a cluster's default `heartbeat` and `offline`.
#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_dead_node_of_the_embedded_protocol_has_new_owners_too() {
    let limit = seconds("FANPCAP_OFFLINE", 3);
    let (beat, offline) = (limit.as_millis() / 3, limit.as_millis());
    let more = format!("heartbeat = {beat}ms\noffline = {offline}ms\n");
    netns::within_new(|| dead_machine(Engine::Embedded, &more)).unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_killed_analyzer_costs_no_packet_and_its_successor_writes_none_again() {
    netns::within_new(|| {
        let mut stage = Stage::new(Engine::Etcd(1), CAPTURE)?;
        stage.send();
        for _ in 0..2 {
            thread::sleep(2 * BEFORE);
            stage.kill_analyzer()?;
            let written = stage.truth_so_far()?;
            ensure!(written.captured > 0 && written.doubles == 0, "{written:?}");
            thread::sleep(BEFORE);
            stage.start_analyzer()?;
        }
        thread::sleep(BEFORE);
        stage.rest()?;
        let truth = await_for("all packets in the files", PATIENCE, || {
            thread::sleep(BEFORE);
            let truth = Truth::of(stage.sent, files::numbers(&stage.records())?)?;
            Ok((truth.missed == 0).then_some(truth))
        });
        let truth = truth.with_context(|| stage.output())?;
        println!("{truth:?}, {:.1} kpps", stage.rate());
        ensure!((truth.missed, truth.doubles) == (0, 0), "{truth:?}");
        // The new analyzer's account began while packets came, so it may give a range of losses.
        let line = stage.line().context("a line")?;
        line.assert_within("lost", 0)?;
        ensure!(
            line.number("export")? + line.number("analyzer")? == 0,
            "{line}"
        );
        println!("{line}");
        Ok(())
    })
    .unwrap();
}

/// A small disk, which is unmounted when this value is dropped.
struct Disk(std::path::PathBuf);

impl Disk {
    fn mount(at: &std::path::Path) -> Result<Self> {
        std::fs::create_dir_all(at)?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]);
        ensure!(command.arg(at).status()?.success(), "mount");
        Ok(Self(at.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // If this fails, removing the directory fails too, and shows the error.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Tests that take too long for `make test`.
mod long {
    use super::*;

    /// In distribution mode, the agent never handles packets.
    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn killed_and_stopped_agents_cost_tcpdump_nothing() {
        netns::within_new(|| {
            let mut stage = Stage::new(Engine::Etcd(1), "")?;
            stage.send();
            thread::sleep(BEFORE / 2);
            stage.kill(0)?;
            thread::sleep(BEFORE);
            stage.start(0)?;
            stage.signal(1, "STOP")?;
            stage.await_new_owners(1)?;
            thread::sleep(seconds("FANPCAP_HANG", 1));
            stage.signal(1, "CONT")?;
            stage.await_owners(&[0, 1, 2])?;
            thread::sleep(BEFORE / 2);
            stage.rest()?;
            let line = stage.await_rest()?;
            let truth = stage.truth(&line)?;
            println!("{truth:?}, {:.1} kpps: {line}", stage.rate());
            ensure!(truth.missed == 0, "{truth:?}: {line}\n{}", stage.output());
            let captured = truth.captured + truth.doubles;
            ensure!(line.is("captured", captured), "{captured} captured: {line}");
            line.assert_within("doubles", truth.doubles)
        })
        .unwrap();
    }

    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn an_agent_that_hangs_goes_on_and_is_accounted() {
        netns::within_new(|| hang(Engine::Embedded, QUICK)).unwrap();
    }

    #[test]
    #[ignore = "needs root: namespaces, XDP"]
    fn a_dead_node_of_etcd_has_new_owners_and_its_packets_are_accounted() {
        netns::within_new(|| dead_machine(Engine::Etcd(1), "")).unwrap();
    }

    #[test]
    #[ignore = "needs root: namespaces, XDP, a file system of its own"]
    fn what_a_full_disk_does_not_take_is_counted() {
        netns::within_new(|| {
            let mut disk = None;
            let mut stage = Stage::prepared(Engine::Etcd(1), CAPTURE, |records| {
                disk = Some(Disk::mount(records)?);
                Ok(())
            })?;
            stage.send();
            stage.await_line("a full disk", |line| {
                line.number("analyzer").is_ok_and(|count| count > 0)
            })?;
            thread::sleep(BEFORE);
            stage.rest()?;
            let (line, truth) = assert_accounted(&stage)?;
            ensure!(line.is("lost", 0), "nodes lost packets: {truth:?}: {line}");
            drop(disk);
            Ok(())
        })
        .unwrap();
    }
}
