//! Exports packets and counts to IPFIX collectors, in a separate thread.
//!
//! Each node is a separate observation domain, with the node's id as its number. If a collector
//! does not read, or the thread is too slow, packets are not exported. The analyzer does not wait.

mod target;
mod connection;
mod collector;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use fanpcap_cluster::analyzer::Delivered;
use fanpcap_cluster::loss_account::Report;
use fanpcap_cluster::{NodeId, Revision};
use fanpcap_ipfix::{Algorithm, Packet, Selector, Statistics};
use fanpcap_linux::wait::clock::realtime_ns;
use fanpcap_select::{Key, PAYLOAD, Selection, digest};
use fanpcap_terminal::streams;
use fanpcap_wire::Frame;

use collector::Collector;
pub(super) use target::Target;

/// Maximum number of messages that may wait for the thread.
const QUEUE: usize = 256;

/// Number of packets in one message to the thread.
const TOGETHER: usize = 512;

/// Maximum number of nodes whose packets and counts are exported.
const NODES: usize = 256;

/// Number of options records that are sent without a pause, because collectors have small buffers.
const BURST: usize = 64;

/// The pause after [`BURST`] options records.
const PAUSE: Duration = Duration::from_millis(1);

/// How long the export thread waits for a message before it sends the records that are due.
const WAIT: Duration = Duration::from_millis(200);

const BUCKETS: u32 = 4096;

#[derive(Debug)]
enum ExportMessage {
    Packets(Vec<OwnedPacket>),
    Topology(Revision, Selection),
    Counts(Box<Report>),
}

#[derive(Debug)]
struct OwnedPacket {
    node: NodeId,
    stamp: u64,
    wire_len: u32,
    bucket: u16,
    frame: Vec<u8>,
}

/// Counts packets that were exported, left out, shortened or lost.
#[derive(Debug, Default)]
pub(super) struct Exported {
    /// Packets that were handed to collectors, counted once for each collector.
    pub(super) packets: AtomicU64,
    /// Packets that a flow can't describe.
    pub(super) left_out: AtomicU64,
    /// Packets that were shortened, because the captured bytes did not fit into a message.
    pub(super) cut: AtomicU64,
    /// Messages that a collector did not get.
    pub(super) lost: AtomicU64,
    /// Packets not exported because the thread was too slow or no collector could take them.
    pub(super) skipped: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Exports {
    to: Option<SyncSender<ExportMessage>>,
    thread: Option<JoinHandle<()>>,
    waiting: Vec<OwnedPacket>,
    /// The newest topology; `None` once the export thread has it.
    topology: Option<(Revision, Selection)>,
    pub(super) exported: Arc<Exported>,
}

impl Exports {
    /// Begins to export to these collectors.
    pub(super) fn start(targets: Vec<Target>) -> Result<Self> {
        let (to, news) = sync_channel(QUEUE);
        let exported = Arc::new(Exported::default());
        let worker = Worker {
            targets,
            nodes: BTreeMap::new(),
            topology: None,
            exported: Arc::clone(&exported),
        };
        let thread = thread::Builder::new().name("exports".to_owned());
        let thread = thread.spawn(move || worker.run(&news));
        Ok(Self {
            to: Some(to),
            thread: Some(thread.context("starting a thread")?),
            waiting: Vec::new(),
            topology: None,
            exported,
        })
    }

    pub(super) fn packet(&mut self, packet: &Delivered<'_>) {
        self.waiting.push(OwnedPacket {
            node: packet.node,
            stamp: packet.record.stamp,
            wire_len: packet.record.wire_length,
            bucket: packet.record.bucket,
            frame: packet.record.captured.to_vec(),
        });
        if self.waiting.len() >= TOGETHER {
            self.flush();
        }
    }

    /// Passes the waiting packets to the export thread.
    pub(super) fn flush(&mut self) {
        let packets = std::mem::take(&mut self.waiting);
        let count = packets.len() as u64;
        let is_current = self.tell_topology();
        if count > 0 && !(is_current && self.tell(ExportMessage::Packets(packets))) {
            self.exported.skipped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// From now on, packets are exported with the selection of this topology.
    pub(super) fn follow(&mut self, revision: Revision, selection: Selection) {
        self.flush();
        self.topology = Some((revision, selection));
        self.tell_topology();
    }

    /// Passes the newest topology to the thread, if the thread does not have it. Returns `false` if
    /// the thread still lacks the topology. Then the thread must not get packets.
    fn tell_topology(&mut self) -> bool {
        let Some((revision, selection)) = self.topology else {
            return true;
        };
        let is_told = self.tell(ExportMessage::Topology(revision, selection));
        self.topology = self.topology.filter(|_| !is_told);
        is_told
    }

    pub(super) fn counts(&self, report: &Report) {
        // If these counts can't be sent, the next report includes them.
        self.tell(ExportMessage::Counts(Box::new(report.clone())));
    }

    fn tell(&self, news: ExportMessage) -> bool {
        self.to.as_ref().is_some_and(|to| to.try_send(news).is_ok())
    }
}

impl Drop for Exports {
    /// Exports the packets that are left, and each node's last counts.
    fn drop(&mut self) {
        let packets = std::mem::take(&mut self.waiting);
        if let Some(to) = self.to.take() {
            if let Some((revision, selection)) = self.topology.take() {
                let _ = to.send(ExportMessage::Topology(revision, selection));
            }
            let _ = to.send(ExportMessage::Packets(packets));
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    targets: Vec<Target>,
    nodes: BTreeMap<NodeId, Domain>,
    topology: Option<(Revision, Selection)>,
    exported: Arc<Exported>,
}

/// A node's exports.
#[derive(Default)]
struct Domain {
    collectors: Vec<Collector>,
    report: Option<Report>,
    /// The part of this node's counts that is in the totals, ordered as in [`Collector::counts`].
    added: [u64; 4],
}

impl Worker {
    fn run(mut self, news: &Receiver<ExportMessage>) {
        loop {
            match news.recv_timeout(WAIT) {
                Ok(ExportMessage::Packets(packets)) => {
                    packets.iter().for_each(|it| self.packet(it))
                }
                Ok(ExportMessage::Topology(revision, selection)) => {
                    self.end_epoch();
                    self.topology = Some((revision, selection));
                }
                Ok(ExportMessage::Counts(report)) => self.counts(*report),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tend();
        }
        self.end_epoch();
        for domain in self.nodes.values_mut() {
            domain.collectors.iter_mut().for_each(|it| it.flush(time()));
        }
        self.tend();
    }

    /// The exports of a node, which are opened for its first packet or its first counts.
    fn domain(&mut self, node: NodeId) -> Option<&mut Domain> {
        if !self.nodes.contains_key(&node) {
            if self.nodes.len() >= NODES {
                return None;
            }
            let open = |target: &Target| open(target, node);
            let domain = Domain {
                collectors: self.targets.iter().filter_map(open).collect(),
                ..Domain::default()
            };
            self.nodes.insert(node, domain);
        }
        self.nodes.get_mut(&node)
    }

    fn packet(&mut self, packet: &OwnedPacket) {
        let (revision, selection) = self.topology.unwrap_or_default();
        let frame = Frame {
            bytes: &packet.frame,
            tag: None,
        };
        let exported = Packet {
            time: Duration::from_nanos(packet.stamp),
            wire_len: packet.wire_len,
            frame: &packet.frame,
            revision: revision.0,
            bucket: packet.bucket,
            digest: digest(&frame, selection.initial).0,
        };
        let (targets, counts) = (self.targets.len(), Arc::clone(&self.exported));
        let domain = self.domain(packet.node);
        let collectors = domain.map_or(&mut [][..], |domain| &mut domain.collectors);
        if collectors.len() < targets {
            counts.skipped.fetch_add(1, Ordering::Relaxed);
        }
        for collector in collectors {
            collector.packet(time(), &exported);
        }
    }

    fn counts(&mut self, report: Report) {
        let topology = self.topology;
        let Some(domain) = self.domain(report.summary.node) else {
            return;
        };
        domain.report = Some(report);
        if let Some((revision, selection)) = topology {
            domain.describe(revision, selection);
        }
    }

    /// Exports each node's counts until now, because the topology changes or the analyzer ends.
    fn end_epoch(&mut self) {
        for domain in self.nodes.values_mut() {
            domain.report();
        }
    }

    /// Sends records that have waited long enough, and updates the totals.
    fn tend(&mut self) {
        for domain in self.nodes.values_mut() {
            let collectors = domain.collectors.iter_mut();
            collectors.for_each(|it| it.tend(time()));
            let mut counts = [0; 4];
            for collector in &domain.collectors {
                let more = collector.counts();
                counts = std::array::from_fn(|it| counts[it] + more[it]);
            }
            let added = std::mem::replace(&mut domain.added, counts);
            let Exported {
                packets,
                left_out,
                cut,
                lost,
                ..
            } = &*self.exported;
            let totals = [packets, left_out, cut, lost].into_iter();
            for (total, (count, added)) in totals.zip(counts.into_iter().zip(added)) {
                total.fetch_add(count - added, Ordering::Relaxed);
            }
        }
    }
}

impl Domain {
    /// Exports how each bucket is selected, to the collectors that do not know it yet.
    fn describe(&mut self, revision: Revision, selection: Selection) {
        let Some(algorithm) = algorithm(selection) else {
            return;
        };
        let collectors = self.collectors.iter_mut();
        let mut new: Vec<&mut Collector> = collectors
            .filter_map(|it| it.describe(time(), revision).then_some(it))
            .collect();
        if new.is_empty() {
            return;
        }
        for bucket in 0..BUCKETS {
            let selector = Selector {
                revision: revision.0,
                bucket: u16::try_from(bucket).unwrap_or(u16::MAX),
                algorithm,
            };
            new.iter_mut().for_each(|it| it.selector(time(), &selector));
            rest(bucket);
        }
    }

    /// Exports the counts of each bucket of which the node saw packets.
    fn report(&mut self) {
        let Some(report) = self.report.take() else {
            return;
        };
        for (bucket, (&observed, &selected)) in
            (0..).zip(report.seen.iter().zip(&report.captured[..]))
        {
            let statistics = Statistics {
                time: Duration::from_nanos(report.summary.stamp),
                revision: report.summary.revision.0,
                bucket,
                observed,
                selected,
            };
            if observed > 0 {
                let collectors = self.collectors.iter_mut();
                collectors.for_each(|it| it.statistics(time(), &statistics));
                rest(bucket.into());
            }
        }
    }
}

/// Pauses after each burst of options records.
fn rest(number: u32) {
    if number as usize % BURST == BURST - 1 {
        thread::sleep(PAUSE);
    }
}

/// PSAMP's name for a selection, if it has one.
fn algorithm(selection: Selection) -> Option<Algorithm> {
    match selection.key {
        Key::Packet => Some(Algorithm::Bob {
            modulus: BUCKETS,
            payload_len: u32::try_from(PAYLOAD).expect("few bytes"),
        }),
        Key::RoundRobin => Some(Algorithm::Systematic {
            interval: 1,
            space: BUCKETS - 1,
        }),
        Key::Flow | Key::Identification => None,
    }
}

/// Opens the connection to a collector. The collector may start later.
fn open(target: &Target, node: NodeId) -> Option<Collector> {
    let opened = Collector::open(target, node.0, time());
    let failed = |error: &io::Error| {
        let address = target.address;
        streams::note(&format!(
            "fanpcap analyzer: no export to {address} of node {node}: a socket to {address}: \
             {error}\n"
        ));
    };
    opened.inspect_err(failed).ok()
}

/// The time since 1970.
fn time() -> Duration {
    Duration::from_nanos(realtime_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topology_that_finds_the_queue_full_comes_before_later_packets() {
        let (to, news) = sync_channel(2);
        let mut exports = Exports {
            to: Some(to),
            thread: None,
            waiting: Vec::new(),
            topology: None,
            exported: Arc::default(),
        };
        let packet = || OwnedPacket {
            node: NodeId(1),
            stamp: 1,
            wire_len: 60,
            bucket: 7,
            frame: Vec::new(),
        };
        for _ in 0..2 {
            exports.waiting.push(packet());
            exports.flush();
        }
        exports.follow(Revision(2), Selection::default());
        exports.waiting.push(packet());
        exports.flush();
        assert_eq!(exports.exported.skipped.load(Ordering::Relaxed), 1);
        assert_eq!(news.try_iter().count(), 2);
        exports.waiting.push(packet());
        exports.flush();
        assert!(matches!(
            news.recv(),
            Ok(ExportMessage::Topology(Revision(2), _))
        ));
        assert!(matches!(news.recv(), Ok(ExportMessage::Packets(_))));
        exports.flush();
        assert!(news.try_recv().is_err());
    }
}
