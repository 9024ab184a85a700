//! Capture mode: the packets and counts that analyzers get.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_cluster::Revision;
use fanpcap_cluster::record::{Batch, CountsDecoder, HEAD_BYTES, Head, encode_ack};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::mirror::{HOST, MONITOR, MONITOR2};
use fanpcap_testkit::{netns, traffic};

use crate::stage::Stage;

const SETTINGS: &str = "mode = capture\nheader = 80\nanalyzers = 192.0.2.254:7710\n";

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn each_packets_first_bytes_arrive_once_and_the_counts_agree() {
    netns::within_new(|| {
        let mut stage = Stage::bare(3)?;
        stage.settings(SETTINGS)?;
        let got = beside_analyzer(|await_got| {
            for node in 0..3 {
                stage.start(node)?;
                stage.await_output(node, "loaded topology")?;
            }
            stage.send(0..3000)?;
            // A killed agent loses the records that it has read and not shipped, so the test waits
            // for them. The ring buffers keep the records that come later.
            await_got("3000 packets", &|got| got.numbers.len() >= 3000)?;
            stage.kill(1)?;
            stage.send(3000..4000)?;
            stage.start(1)?;
            stage.await_output(1, "switched to topology 1")?;
            stage.send(4000..5000)?;
            await_got("5000 packets", &|got| got.numbers.len() >= 5000)?;
            await_got("all counts", &|got| {
                let seen = got.reports.values().map(|(seen, _)| seen);
                seen.sum::<u64>() >= 3 * 5000
            })
        })?;
        got.ensure_once(5000)?;
        ensure!(got.reports.len() == 3, "{} reports", got.reports.len());
        let captured: u64 = got.reports.values().map(|(_, captured)| captured).sum();
        ensure!(captured == 5000, "{captured} captured");
        ensure!(
            got.reports.values().all(|(seen, _)| *seen == 5000),
            "{:?}",
            got.reports
        );
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn packets_in_the_rings_arrive_when_a_leg_is_added() {
    netns::within_new(|| {
        let mut stage = Stage::bare(1)?;
        stage.mirror.add_leg()?;
        stage.settings(SETTINGS)?;
        let got = beside_analyzer(|await_got| {
            stage.start(0)?;
            stage.await_output(0, "loaded topology 1 ")?;
            stage.send(0..500)?;
            await_got("500 packets", &|got| got.numbers.len() >= 500)?;
            stage.kill(0)?;
            stage.send(500..1000)?;
            stage.start_with(0, &["-i", &format!("{MONITOR2},{MONITOR}")])?;
            await_got("1000 packets", &|got| got.numbers.len() >= 1000)
        })?;
        got.ensure_once(1000)?;
        stage.kill(0)?;
        stage.run(0, &["-i", MONITOR2, "--detach"])?;
        Ok(())
    })
    .unwrap();
}

/// Waits until the function returns `true` for what the analyzer got. Errors contain the text,
/// which says what is awaited.
type AwaitGot<'a> = &'a dyn Fn(&str, &dyn Fn(&Got) -> bool) -> Result<()>;

/// Runs `work` while an analyzer receives messages. Returns what the analyzer got.
fn beside_analyzer(work: impl FnOnce(AwaitGot<'_>) -> Result<()>) -> Result<Got> {
    let analyzer = TcpListener::bind((HOST, 7710))?;
    analyzer.set_nonblocking(true)?;
    let stop = AtomicBool::new(false);
    let got = Mutex::new(Got::default());
    thread::scope(|scope| {
        let taking = scope.spawn(|| take(&got, &stop, &analyzer));
        let done = work(&|what, is_it| {
            let is_it = || is_it(&got.lock().unwrap_or_else(PoisonError::into_inner));
            await_for(what, LIMIT, || {
                ensure!(!taking.is_finished(), "a message that can't be read");
                Ok(is_it().then_some(()))
            })
        });
        stop.store(true, Ordering::Relaxed);
        taking.join().expect("no panic")?;
        done
    })?;
    Ok(got.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The contents of the messages that an analyzer got.
#[derive(Default)]
struct Got {
    /// How often each packet's number arrived.
    numbers: BTreeMap<u64, usize>,
    /// For each node, the sums of its last report: packets seen, and packets captured.
    reports: BTreeMap<u32, (u64, u64)>,
}

impl Got {
    /// Asserts that each number below `count` arrived once.
    fn ensure_once(&self, count: u64) -> Result<()> {
        let missed = (0..count)
            .filter(|number| !self.numbers.contains_key(number))
            .count();
        let doubled = self.numbers.values().filter(|count| **count > 1).count();
        ensure!(
            (missed, doubled) == (0, 0),
            "{missed} missed, {doubled} doubled"
        );
        Ok(())
    }
}

/// Accepts connections until `stop` is set.
fn take(got: &Mutex<Got>, stop: &AtomicBool, analyzer: &TcpListener) -> Result<()> {
    thread::scope(|scope| {
        let mut connections = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            match analyzer.accept() {
                Ok((stream, _)) => {
                    connections.push(scope.spawn(move || take_messages(got, stop, stream)));
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
        let mut ended = connections
            .into_iter()
            .map(|it| it.join().expect("no panic"));
        ended.try_for_each(|ended| ended)
    })
}

/// Receives a connection's messages until the connection ends or `stop` is set.
fn take_messages(got: &Mutex<Got>, stop: &AtomicBool, mut stream: TcpStream) -> Result<()> {
    let mut counts = CountsDecoder::default();
    while !stop.load(Ordering::Relaxed) {
        let mut bytes = vec![0; HEAD_BYTES];
        if stream.read_exact(&mut bytes).is_err() {
            // The node's agent was killed.
            break;
        }
        bytes.resize(Head::decode(&bytes)?.length, 0);
        stream.read_exact(&mut bytes[HEAD_BYTES..])?;
        let mut got = got.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(batch) = Batch::decode(&bytes) {
            ensure!(batch.origin.revision == Revision(1), "{:?}", batch.origin);
            for record in batch.records() {
                if let Some(number) = traffic::sequence_of(record.captured) {
                    *got.numbers.entry(number).or_default() += 1;
                }
            }
            stream.write_all(&encode_ack(&batch.head, batch.origin.sequence + 1))?;
        } else {
            let (_, report) = counts.decode(&bytes)?;
            let sums = (report.seen.iter().sum(), report.captured.iter().sum());
            got.reports.insert(report.summary.node.0, sums);
        }
    }
    Ok(())
}
