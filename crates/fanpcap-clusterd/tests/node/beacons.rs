//! Beacons show that a mirror port works, and how much later one node gets a frame than another.
//! Only coordinators can send valid beacons.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_select::in_line::{InLine, Kind};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::mirror::{HOST, MONITOR, MONITOR2, WIRE, WIRE2};
use fanpcap_testkit::{Injector, capture, netns};

use crate::embedded::{coordinator, settings};
use crate::stage::Stage;

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_port_without_beacons_is_named_while_there_is_no_traffic() {
    netns::within_new(|| {
        let mut stage = Stage::bare(3)?;
        let analyzers = format!("beacon = {WIRE}\nanalyzers = {HOST}:7710\n");
        settings(&mut stage, &analyzers)?;
        let _wire = Process(Wire::read(&stage)?);
        let _analyzer = Process(analyzer(&stage)?);
        let _coordinator = coordinator(&stage)?;
        for node in 0..3 {
            stage.start(node)?;
        }
        for node in 0..3 {
            await_more(&stage, node, "beacons_total", 3)?;
        }
        let said = await_line(&stage, "; nodes ", "\"")?;
        ensure!(said.contains(" ms apart"), "{said}");
        ensure!(!said.contains("blind"), "{said}");
        // Somebody on the link sends the last beacons again, and sends forged beacons.
        let before = forged(&stage)?;
        let old = Wire::frames(&stage)?;
        ensure!(old.len() >= 3, "{} beacons on the wire", old.len());
        let wire = Injector::open(WIRE)?;
        wire.send_all(&old)?;
        let sequence = u64::from_be_bytes(*old[0][22..].first_chunk().context("a frame")?);
        for ahead in 0..50 {
            wire.send(&own(sequence + ahead, Kind::Beacon))?;
            wire.send(&own(sequence + ahead, Kind::Update))?;
        }
        let sent = old.len() as u64 + 100;
        for (node, before) in before.iter().enumerate() {
            await_more(&stage, node, "forged_frames_total", before + sent)?;
        }
        for node in 0..3 {
            let last = stage.metric(node, "beacons_total")?;
            await_more(&stage, node, "beacons_total", last + 2)?;
        }
        let expected: Vec<u64> = before.iter().map(|before| before + sent).collect();
        let after = forged(&stage)?;
        ensure!(after == expected, "{before:?}, {sent} more: {after:?}");
        for node in 0..3 {
            ensure!(stage.metric(node, "updates_total")? == 0, "an update");
        }
        stage.mirror.set_loss(2, 1.0)?;
        await_line(&stage, "; node 000000a3: blind", "")?;
        stage.mirror.set_loss(2, 0.0)?;
        // The line also has the port's history: the port was blind.
        await_line(
            &stage,
            "; history of node 000000a3: blind",
            "; node 000000a3: blind",
        )?;
        Ok(())
    })
    .unwrap();
}

/// The node's two devices belong to two taps of one network, so each beacon comes twice.
#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_beacon_that_comes_by_two_devices_is_taken_once_and_not_forged() {
    netns::within_new(|| {
        let mut stage = Stage::bare(1)?;
        stage.mirror.add_leg()?;
        let devices = format!("beacon = {WIRE}\ndevice = {MONITOR}, {MONITOR2}\n");
        settings(&mut stage, &devices)?;
        let _wire = Process(Wire::read(&stage)?);
        let _coordinator = coordinator(&stage)?;
        stage.start_with(0, &[])?;
        await_more(&stage, 0, "beacons_total", 2)?;
        let before = stage.metric(0, "forged_frames_total")?;
        let leg = Injector::open(WIRE2)?;
        for _ in 0..3 {
            let count = Wire::frames(&stage)?.len();
            let next = await_for("a beacon", LIMIT, || {
                Ok(Wire::frames(&stage)?.get(count).cloned())
            })?;
            leg.send_all(&[next])?;
        }
        // A beacon that is older than the last accepted beacon counts as forged.
        leg.send_all(&Wire::frames(&stage)?[..1])?;
        await_more(&stage, 0, "forged_frames_total", before + 1)?;
        await_more(&stage, 0, "beacons_total", 5)?;
        let after = stage.metric(0, "forged_frames_total")?;
        ensure!(after == before + 1, "{before} forged, then {after}");
        Ok(())
    })
    .unwrap();
}

/// A coordinator's frame that was made without the cluster's key.
fn own(sequence: u64, kind: Kind) -> [u8; 60] {
    let frame = InLine {
        kind,
        cluster: cluster(),
        sequence,
        time_ns: 0,
        number: 0x0123_4567_89ab_cdef,
    };
    frame.encode([0xff; 6], [2; 6])
}

/// The number that identifies the cluster `test` in frames.
fn cluster() -> u32 {
    let id = fanpcap_cluster::control::ClusterId::of_name("test").0;
    u32::try_from(id >> 32).unwrap_or_default()
}

fn forged(stage: &Stage) -> Result<Vec<u64>> {
    let of = |node| stage.metric(node, "forged_frames_total");
    (0..stage.mirror.count()).map(of).collect()
}

/// Waits until the metric `what` of a node is at least `least`.
pub(crate) fn await_more(stage: &Stage, node: usize, what: &str, least: u64) -> Result<()> {
    let wait = stage.await_metric(node, what, least);
    wait.with_context(|| stage.said_by("coordinator"))
}

/// Reads coordinators' frames from the wire.
pub(crate) struct Wire;

impl Wire {
    /// Starts tcpdump, which reads the frames.
    pub(crate) fn read(stage: &Stage) -> Result<Child> {
        let file = stage.scratch.file("wire.pcap");
        let mut command = Command::new("tcpdump");
        command.args(["-n", "-U", "--immediate-mode", "-i", WIRE, "-w"]);
        command.arg(&file).args(["ether", "proto", "0x88b5"]);
        let said = stage.scratch.new_file("tcpdump");
        let child = command.stderr(File::create(&said)?).spawn()?;
        await_for("tcpdump", LIMIT, || {
            Ok(fs::read_to_string(&said)?
                .contains("listening")
                .then_some(()))
        })?;
        Ok(child)
    }

    /// The frames that tcpdump has written so far.
    pub(crate) fn frames(stage: &Stage) -> Result<Vec<Vec<u8>>> {
        capture::frames(&stage.scratch.file("wire.pcap"))
    }
}

/// A process, which is ended when this value is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an analyzer, whose messages go to the file `analyzer`.
fn analyzer(stage: &Stage) -> Result<Child> {
    let log = File::create(stage.scratch.file("analyzer"))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap-cluster"));
    command
        .args(["analyzer", "--config"])
        .arg(stage.scratch.file("cluster.conf"));
    command.stdin(Stdio::null()).stdout(log.try_clone()?);
    Ok(command.stderr(log).spawn()?)
}

/// Waits until the analyzer's newest line contains `text` and does not contain `without`. Returns
/// the line.
fn await_line(stage: &Stage, text: &str, without: &str) -> Result<String> {
    let file = stage.scratch.file("analyzer");
    let wait = await_for("the analyzer's words", LIMIT, || {
        thread::sleep(Duration::from_millis(100));
        let said = fs::read_to_string(&file)?;
        let mut lines = said.lines();
        let last = lines.rfind(|line| line.contains("offered")).unwrap_or("");
        let is_right = last.contains(text) && (without.is_empty() || !last.contains(without));
        Ok(is_right.then(|| last.to_owned()))
    });
    wait.with_context(|| format!("{text:?} in: {}", stage.said_by("analyzer")))
}
