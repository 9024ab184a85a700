//! Four collectors of other projects receive an analyzer's exports at the same time. Each collector
//! must have the data that was sent and that the analyzer has, also after the collectors' restart.

mod sent;
mod kinds;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::mirror::HOST;
use fanpcap_testkit::{netns, traffic};
use pcap_file::pcapng::{Block, PcapNgReader};
use serde_json::Value;

use crate::program::Program;
use crate::stage::Stage;
use kinds::{Collector, Kind};
use sent::{Sent, Sums};

const NODES: usize = 3;
const BUCKETS: u64 = 4096;

#[test]
#[ignore = "needs root: namespaces, XDP; and the network, for a Go module and a Python package"]
fn collectors_of_others_count_what_was_sent_before_and_after_their_restart() {
    let kinds = installed();
    netns::within_new(|| {
        let mut cluster = Cluster::start(&kinds)?;
        let collectors = cluster.start_collectors("first")?;
        cluster.start_nodes()?;
        let first = cluster.send(&sent::mixed(0..4000)?)?;
        cluster.await_options(&collectors)?;
        cluster.compare(collectors, &first)?;
        // No collector listens. Messages that are sent now are lost, and counted as lost.
        ensure!(cluster.lost()? == 0, "messages were lost");
        cluster.send(&sent::plain(4000..4500)?)?;
        let lost = cluster.await_lost()?;
        let collectors = cluster.start_collectors("second")?;
        cluster.await_options(&collectors)?;
        let mut second = cluster.send(&sent::mixed(5000..9000)?)?;
        ensure!(cluster.lost()? == lost, "messages were lost");
        // A third of these frames does not reach the nodes.
        second += cluster.send_blind(sent::plain(9000..10_000)?)?;
        cluster.end(collectors, &second)
    })
    .unwrap();
}

/// The collectors that are installed. For each missing collector, prints why it is skipped.
#[allow(
    clippy::print_stdout,
    reason = "the test's output shows what was skipped"
)]
fn installed() -> Vec<Kind> {
    let mut kinds = Kind::ALL.to_vec();
    kinds.retain(|kind| {
        let installed = kind.install();
        if let Err(error) = &installed {
            println!("SKIP: no {kind:?} here: {error:#}");
        }
        installed.is_ok()
    });
    kinds
}

/// Three nodes, and an analyzer that exports.
struct Cluster {
    stage: Stage,
    kinds: Vec<Kind>,
    analyzer: Option<Program>,
    /// Sums of the sent frames that have reached the analyzer.
    sums: Sums,
}

impl Cluster {
    /// Prepares the cluster, and starts no programs.
    fn start(kinds: &[Kind]) -> Result<Self> {
        let mut stage = Stage::bare(NODES)?;
        let key = stage.scratch.write("key", &"k".repeat(32))?;
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        stage.settings(&format!(
            "mode = capture\nheader = 100\nanalyzers = {HOST}:7710\ntransport = tcp\n\
             key_file = {}\n",
            key.display()
        ))?;
        Ok(Self {
            stage,
            kinds: kinds.to_vec(),
            analyzer: None,
            sums: Sums::default(),
        })
    }

    fn start_collectors(&self, name: &str) -> Result<Vec<Collector>> {
        let start = |kind: &Kind| {
            let dir = self.stage.scratch.file(&format!("{name}-{kind:?}"));
            Collector::start(*kind, dir)
        };
        self.kinds.iter().map(start).collect()
    }

    fn start_nodes(&mut self) -> Result<()> {
        let records = self.stage.scratch.file("records");
        fs::create_dir(&records)?;
        let mut options = vec!["--write".to_owned(), records.display().to_string()];
        for kind in &self.kinds {
            options.extend(["--export".to_owned(), kind.url()]);
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        self.analyzer = Some(Program::analyzer(&self.stage, &options)?);
        for node in 0..NODES {
            self.stage.start(node)?;
            self.stage.await_output(node, "loaded topology")?;
        }
        Ok(())
    }

    fn analyzer(&self) -> Result<&Program> {
        self.analyzer.as_ref().context("the analyzer runs")
    }

    /// Sends frames, and waits until the analyzer has delivered and exported each frame.
    fn send(&mut self, frames: &[Sent]) -> Result<Sums> {
        let sums = sent::send(frames)?;
        self.sums += sums;
        self.await_exported()?;
        Ok(sums)
    }

    fn await_exported(&self) -> Result<()> {
        let exported = self.kinds.iter().map(|kind| kind.exported(&self.sums));
        let exported: u64 = exported.sum();
        let frames = self.sums.frames;
        let wait = self.analyzer()?.await_state("the exports", |state| {
            state["delivered"] == frames && state["figures"]["exported_packets"] == exported
        });
        let state = wait.with_context(|| format!("{frames} delivered, {exported} exported"))?;
        let flows = self.kinds.contains(&Kind::Nfcapd);
        let left_out = u64::from(flows) * (frames - self.sums.ip_packets);
        for (name, count) in [("left_out", left_out), ("cut", 0), ("skipped", 0)] {
            let found = &state["figures"][format!("export_{name}_packets")];
            ensure!(*found == count, "{name}: {count}, not {found}");
        }
        Ok(())
    }

    /// The number of messages that the collectors did not get, according to the analyzer.
    fn lost(&self) -> Result<u64> {
        let state = self.analyzer()?.await_state("a state", Value::is_object)?;
        lost(&state).context("a count")
    }

    /// Waits until the number of lost messages stays the same for 2.5 s. This is enough, because
    /// the last message is at most half a second late, and the analyzer's state at most one second
    /// old.
    fn await_lost(&self) -> Result<u64> {
        let mut last = 0;
        await_for("lost messages", LIMIT, || {
            thread::sleep(Duration::from_millis(2500));
            let now = self.lost()?;
            Ok((std::mem::replace(&mut last, now) == now && now > 0).then_some(now))
        })
    }

    /// Waits until each collector that counts options records has the records for all buckets of
    /// all nodes. Such a collector also has the templates.
    fn await_options(&self, collectors: &[Collector]) -> Result<()> {
        for collector in collectors {
            let wait = await_for("records of options", LIMIT, || {
                let is_known = |count| count >= NODES as u64 * BUCKETS;
                Ok(collector.options()?.is_none_or(is_known).then_some(()))
            });
            wait.with_context(|| format!("{:?}: {:?}", collector.kind, collector.options()))?;
        }
        Ok(())
    }

    /// Stops the collectors, and checks that each has written the frames of `sums`.
    fn compare(&self, collectors: Vec<Collector>, sums: &Sums) -> Result<()> {
        collectors.iter().try_for_each(|it| it.await_read(sums))?;
        // A collector's own processes may still be passing data to each other.
        thread::sleep(Duration::from_millis(500));
        let mut wrong = Vec::new();
        for collector in collectors {
            let kind = collector.kind;
            let (written, expected) = (collector.stop()?, kind.expected(sums));
            if written != expected {
                wrong.push(format!("{kind:?}: {written:?}, not {expected:?}"));
            }
        }
        ensure!(wrong.is_empty(), "{wrong:?}, of {sums:?}");
        Ok(())
    }

    /// Sends frames while a node is blind. Returns the sums of the frames that have
    /// reached the analyzer.
    fn send_blind(&mut self, frames: Vec<Sent>) -> Result<Sums> {
        self.stage.mirror.set_loss(NODES - 1, 1.0)?;
        let before = self.sums.frames;
        let sent = before + sent::send(&frames)?.frames;
        let state = self
            .analyzer()?
            .await_state("the account of the loss", |state| {
                let loss = &state["lost"];
                let of = |value: &Value| value.as_u64().unwrap_or(0);
                loss["least"] == loss["most"]
                    && of(&loss["least"]) > 0
                    && of(&state["delivered"]) + of(&loss["least"]) == sent
            })?;
        let found = self.files()?.numbers;
        let is_found = |frame: &&Sent| {
            traffic::sequence_of(frame.as_ref()).is_some_and(|number| found.contains(&number))
        };
        let sums = Sums::of(frames.iter().filter(is_found));
        ensure!(
            state["delivered"] == before + sums.frames,
            "{sums:?}: {state}"
        );
        self.sums += sums;
        self.await_exported()?;
        Ok(sums)
    }

    /// Stops the analyzer and the collectors. Checks that each collector has written the frames of
    /// `sums`. The analyzer must have written the frames of the whole test.
    fn end(mut self, collectors: Vec<Collector>, sums: &Sums) -> Result<()> {
        let (log, out) = self.analyzer.take().context("the analyzer")?.stop("TERM")?;
        let last: Value = serde_json::from_str(out.lines().last().context("a state")?)?;
        let files = self.files()?;
        let has = (files.packets, files.octets);
        ensure!(
            has == (self.sums.frames, self.sums.octets),
            "{has:?}, not {:?}",
            self.sums
        );
        ensure!(last["written"] == self.sums.frames, "{last}; {log}");
        for collector in &collectors {
            if collector.kind == Kind::Ipfix {
                await_statistics(collector, &last)?;
            }
        }
        self.compare(collectors, sums)
    }

    /// What the analyzer's files contain.
    fn files(&self) -> Result<Files> {
        let mut files = Files::default();
        for entry in fs::read_dir(self.stage.scratch.file("records"))? {
            files.read(File::open(entry?.path())?)?;
        }
        Ok(files)
    }
}

fn lost(state: &Value) -> Option<u64> {
    state["figures"]["export_lost_messages"].as_u64()
}

/// Waits until the collector has the nodes' last statistics, which the analyzer exports when it
/// ends. The statistics must show the same packets and losses as `state`, the analyzer's last
/// state.
fn await_statistics(collector: &Collector, state: &Value) -> Result<()> {
    let mut last = Value::Null;
    let wait = await_for("statistics", LIMIT, || {
        last = kinds::read_json(&collector.counts_file())?;
        let number = |name: &str| last[name].as_u64().unwrap_or(0);
        let (observed, selected) = (number("observed"), number("selected"));
        let lost = observed.checked_sub(selected);
        let is_same =
            state["delivered"] == selected && lost.is_some_and(|it| state["lost"]["least"] == it);
        Ok(is_same.then_some(()))
    });
    wait.with_context(|| format!("{last}; {state}"))?;
    ensure!(last["unknown"] == 0 && last["gaps"] == 0, "{last}");
    Ok(())
}

/// The contents of pcapng files.
#[derive(Debug, Default)]
struct Files {
    packets: u64,
    octets: u64,
    numbers: BTreeSet<u64>,
}

impl Files {
    /// Adds the packets in the complete blocks of a file.
    fn read(&mut self, file: File) -> Result<()> {
        let mut reader = PcapNgReader::new(file)?;
        while let Some(Ok(block)) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block {
                self.packets += 1;
                self.octets += u64::from(packet.original_len);
                self.numbers.extend(traffic::sequence_of(&packet.data));
            }
        }
        Ok(())
    }
}
