//! The analyzer's loop: takes messages, writes packets to files, and returns a status each second.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Result;
use fanpcap_cluster::analyzer::{Analyzer, AnalyzerSettings, Counters, Delivered};
use fanpcap_cluster::dicap::HEADER_BYTES;
use fanpcap_cluster::loss_account::LedgerSettings;
use fanpcap_cluster::record::{Batch, Record};
use fanpcap_cluster::{Part, Revision};
use fanpcap_terminal::streams;

use super::clock::Clock;
use super::exports::Exports;
use super::extra_counter::{self, ExtraCounter};
use super::files::{Files, Rotation};
use super::intake::{self, Content, Message};
use super::node_reports::NodeReports;
use super::outputs::PacketOutputs;
use super::pending_acks::PendingAcks;
use super::refusal::Refused;
use super::status::Status;
use super::topology_follower::TopologyUpdate;
use crate::dicap::{Datagram, Receiver as DicapReceiver};
use crate::keyring::Keyring;

/// The time between two deliveries of records, in nanoseconds.
const TICK: u64 = 50_000_000;

/// The time between two statuses, in nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Maximum number of messages that the loop takes before it reads the clock again.
const BURST: usize = 256;

/// The analyzer's loop, with all its parts.
#[derive(Debug)]
pub(super) struct AnalyzerLoop {
    listen: SocketAddr,
    clock: Clock,
    analyzer: Analyzer,
    node_reports: NodeReports,
    outputs: PacketOutputs,
    pending_acks: PendingAcks,
    dicap: Option<DicapReceiver>,
    messages: Receiver<Message>,
    refused: Arc<Refused>,
    garbage: u64,
    /// Why the topology is unknown; `None` if it is known.
    blind: Option<String>,
    next_tick: u64,
    next_second: u64,
}

/// The settings of an analyzer's loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnalyzerLoopSettings<'a> {
    pub(super) listen: SocketAddr,
    /// The buckets that the analyzer accounts for.
    pub(super) part: Part,
    pub(super) keyring: &'a Arc<Keyring>,
    pub(super) clock: Clock,
    /// The directory of pcapng files; `None`: no files.
    pub(super) directory: Option<&'a Path>,
    pub(super) rotation: Rotation,
    pub(super) analyzer: AnalyzerSettings,
    /// Whether nodes send records and counts; if not, they send only counts.
    pub(super) analyzed: bool,
    /// Nanoseconds after which a silent node counts as dead.
    pub(super) offline: u64,
    /// The port for the datagrams of DiCAP, on the same address.
    pub(super) dicap_port: Option<u16>,
}

impl AnalyzerLoop {
    pub(super) fn open(settings: &AnalyzerLoopSettings<'_>) -> Result<Self> {
        let (messages, refused) =
            intake::open(settings.listen, settings.analyzer.cluster, settings.keyring)?;
        let dicap = settings.dicap_port.map(|port| {
            let has_keys = settings.keyring.tls().is_some();
            DicapReceiver::open(SocketAddr::new(settings.listen.ip(), port), has_keys)
        });
        let ledger = LedgerSettings {
            skew: settings.analyzer.skew,
            begin: settings.clock.now(),
            analyzed: settings.analyzed,
        };
        Ok(Self {
            listen: settings.listen,
            clock: settings.clock,
            analyzer: Analyzer::new(settings.analyzer),
            node_reports: NodeReports::new(ledger, settings.offline, settings.part),
            outputs: PacketOutputs::open(settings.directory, settings.rotation)?,
            pending_acks: PendingAcks::default(),
            dicap: dicap.transpose()?,
            messages,
            refused,
            garbage: 0,
            blind: None,
            next_tick: 0,
            next_second: 0,
        })
    }

    /// From now on, also exports all delivered packets.
    pub(super) fn export(&mut self, exports: Exports) {
        self.outputs.exports = Some(exports);
    }

    pub(super) fn follow(&mut self, update: TopologyUpdate) {
        match update {
            TopologyUpdate::Topology(revision, topology) => {
                match Part::of(self.listen, &topology.analyzers) {
                    Some(part) => self.account_for(part),
                    None => streams::note(&format!(
                        "fanpcap analyzer: {} is not among the analyzers of topology {revision}: \
                         this analyzer still accounts for the buckets that it had\n",
                        self.listen
                    )),
                }
                if let Some(exports) = &mut self.outputs.exports {
                    exports.follow(revision, topology.selection);
                }
                self.node_reports
                    .add_topology(revision, (*topology).clone());
                self.analyzer.follow(revision, *topology);
            }
            TopologyUpdate::Current(time) => {
                self.analyzer.know(time);
                self.blind = None;
            }
            TopologyUpdate::Blind(why) => self.blind = Some(why),
        }
    }

    fn account_for(&mut self, part: Part) {
        let now = self.clock.now();
        if self.node_reports.follow(part, &self.analyzer, now) {
            self.analyzer.count_from(now);
            streams::note("fanpcap analyzer: its buckets changed, so its account begins again\n");
        }
    }

    /// The revision of a topology that nodes follow and that the analyzer does not know yet.
    pub(super) fn unheard(&self) -> Option<Revision> {
        self.analyzer.unheard()
    }

    /// Takes messages, and delivers the packets that are due. Returns a status if one is due.
    pub(super) fn work(&mut self) -> Option<Status> {
        let mut wait = Duration::from_millis(20);
        for _ in 0..BURST {
            match self.messages.recv_timeout(wait) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => break,
                // The threads of the intake live as long as the process.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            wait = Duration::ZERO;
        }
        let now = self.clock.now();
        self.take_dicap(now);
        if now < self.next_tick {
            return None;
        }
        self.next_tick = now + TICK;
        self.release(now);
        self.outputs.flush(now);
        self.pending_acks.settle(self.analyzer.given());
        if now < self.next_second {
            return None;
        }
        self.next_second = now + SECOND;
        self.node_reports.settle(&self.analyzer, now);
        Some(self.status())
    }

    fn release(&mut self, now: u64) {
        let outputs = &mut self.outputs;
        self.analyzer
            .release(now, |packet| outputs.put(packet, now));
    }

    fn take(&mut self, message: Message) {
        let now = self.clock.now();
        match message.content {
            Content::Counts(part, report) => {
                if let Some(dicap) = &self.dicap {
                    dicap.senders.take(message.from, now);
                }
                if let Some(exports) = &self.outputs.exports {
                    exports.counts(&report);
                }
                self.node_reports.take(part, *report, &self.analyzer, now);
            }
            Content::Records(bytes) => match Batch::decode(&bytes) {
                Ok(batch) => {
                    // `take` counts refused batches. Senders need not send refused batches again.
                    let _ = self.analyzer.take(&batch, now);
                    // A connection delivers batches in order. So an earlier batch that is missing
                    // was lost by the node, or was taken by a previous analyzer.
                    let due = self.analyzer.due(&batch.head);
                    self.pending_acks
                        .add(due, &message.lacks, batch.origin.sequence);
                }
                Err(_) => self.garbage += 1,
            },
        }
        if self.analyzer.is_full() {
            self.release(now);
        }
    }

    /// Takes the datagrams of DiCAP. Each packet gets its time of arrival as its time stamp. The
    /// analyzer can't find doubles or losses among these packets.
    fn take_dicap(&mut self, now: u64) {
        let Some(dicap) = &mut self.dicap else {
            return;
        };
        for Datagram { from, bytes } in dicap.queue.try_iter().take(BURST) {
            for captured in bytes.chunks_exact(HEADER_BYTES) {
                dicap.headers += 1;
                let packet = Delivered {
                    revision: Revision(0),
                    node: from,
                    link: ETHERNET,
                    record: Record {
                        stamp: now,
                        wire_length: 0,
                        bucket: 0,
                        marked: false,
                        captured,
                    },
                    late: false,
                };
                self.outputs.put(&packet, now);
            }
        }
    }

    /// The counters of features that not every analyzer uses.
    fn extra_counters(&self) -> Vec<(ExtraCounter, u64)> {
        let mut extra_counters = Vec::new();
        let files = self.outputs.files.as_ref();
        if let Some(removed) = files.map(Files::removed) {
            extra_counters.extend([
                (extra_counter::REMOVED_FILES, removed.files),
                (extra_counter::REMOVED_BYTES, removed.bytes),
            ]);
        }
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        if let Some(compressed) = files.and_then(Files::compressed) {
            extra_counters.extend([
                (extra_counter::COMPRESSED_FILES, read(&compressed.files)),
                (extra_counter::COMPRESSED_SAVED, read(&compressed.saved)),
            ]);
        }
        if let Some(exports) = &self.outputs.exports {
            let exported = &exports.exported;
            extra_counters.extend([
                (extra_counter::EXPORTED, read(&exported.packets)),
                (extra_counter::EXPORT_LEFT_OUT, read(&exported.left_out)),
                (extra_counter::EXPORT_CUT, read(&exported.cut)),
                (extra_counter::EXPORT_LOST, read(&exported.lost)),
                (extra_counter::EXPORT_SKIPPED, read(&exported.skipped)),
            ]);
        }
        if let Some(dicap) = &self.dicap {
            let captured = self.node_reports.account().total.captured.least;
            let captured = u64::try_from(captured).unwrap_or(0);
            extra_counters.extend([
                (extra_counter::DICAP_HEADERS, dicap.headers),
                (extra_counter::DICAP_REFUSED, read(&dicap.counts.refused)),
                (extra_counter::DICAP_DROPPED, read(&dicap.counts.dropped)),
                (
                    extra_counter::DICAP_MISSING,
                    captured.saturating_sub(dicap.headers),
                ),
            ]);
        }
        extra_counters
    }

    /// Writes all packets that the analyzer has not delivered yet. Called before the analyzer ends.
    pub(super) fn close(&mut self) -> Status {
        let now = self.clock.now();
        let outputs = &mut self.outputs;
        self.analyzer.flush(|packet| outputs.put(packet, now));
        self.outputs.flush(now);
        self.pending_acks.settle(self.analyzer.given());
        self.node_reports.settle(&self.analyzer, now);
        self.status()
    }

    fn status(&self) -> Status {
        let files = self.outputs.files.as_ref();
        let (missing, export_lost) = self.node_reports.missing(&self.analyzer);
        Status {
            account: self.node_reports.account(),
            clocks: self.node_reports.clocks(),
            ages: self.node_reports.ages(self.clock.now()),
            blind: self.blind.clone(),
            missing,
            counters: Counters {
                export_lost,
                ..self.analyzer.counters()
            },
            written: files.map_or(0, |it| it.written),
            unwritten: files.map_or(0, |it| it.unwritten),
            refused: self.garbage + self.node_reports.refused + self.refused.all(),
            refusals: self.refused.reasons(),
            extra_counters: self.extra_counters(),
            trouble: files.and_then(|it| it.trouble.clone()),
        }
    }
}

/// Link type of DiCAP's headers (`LINKTYPE_ETHERNET`).
const ETHERNET: u16 = 1;
