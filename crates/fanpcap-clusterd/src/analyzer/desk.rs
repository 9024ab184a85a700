//! The analyzer at work: messages in, packets out to files, a status once a second.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use fanpcap_cluster::NodeEvent;
use fanpcap_cluster::analyzer::{Analyzer, AnalyzerSettings};
use fanpcap_cluster::record::{Batch, Head, Kind};
use fanpcap_cluster::witness::LedgerSettings;

use super::books::Books;
use super::files::{Files, Rotation};
use super::intake::{self, Dropped, Message};
use super::status::Status;

/// How often records are given out.
const TICK: u64 = 50_000_000;

/// Messages that are taken before the clock is looked at.
const BURST: usize = 256;

/// The analyzer at work.
#[derive(Debug)]
pub(super) struct Desk {
    cluster: u64,
    analyzer: Analyzer,
    books: Books,
    files: Option<Files>,
    messages: Receiver<Message>,
    dropped: Arc<Dropped>,
    garbage: u64,
    next_tick: u64,
    next_second: u64,
}

/// What a desk is set up with.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeskSettings<'a> {
    pub(super) listen: SocketAddr,
    pub(super) directory: Option<&'a Path>,
    pub(super) rotation: Rotation,
    pub(super) analyzer: AnalyzerSettings,
    /// Whether nodes send records, or counts only.
    pub(super) analyzed: bool,
    /// Nanoseconds after which a silent node is dead.
    pub(super) offline: u64,
}

impl Desk {
    pub(super) fn open(settings: &DeskSettings<'_>) -> Result<Self> {
        let (messages, dropped) = intake::open(settings.listen)?;
        let files = settings
            .directory
            .map(|at| Files::new(at, settings.rotation));
        let ledger = LedgerSettings {
            skew: settings.analyzer.skew,
            begin: now(),
            analyzed: settings.analyzed,
        };
        Ok(Self {
            cluster: settings.analyzer.cluster,
            analyzer: Analyzer::new(settings.analyzer),
            books: Books::new(ledger, settings.offline),
            files: files.transpose()?,
            messages,
            dropped,
            garbage: 0,
            next_tick: 0,
            next_second: 0,
        })
    }

    /// Follows the cluster's topology.
    pub(super) fn follow(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Topology(revision, topology) => self.analyzer.follow(revision, *topology),
            NodeEvent::Reach(reach) => self.analyzer.reach(reach),
            NodeEvent::Refused(_) => {}
        }
    }

    /// Works for a moment. Returns a status, if one is due.
    pub(super) fn work(&mut self) -> Option<Status> {
        let mut wait = Duration::from_millis(20);
        for _ in 0..BURST {
            match self.messages.recv_timeout(wait) {
                Ok(message) => self.take(&message),
                Err(RecvTimeoutError::Timeout) => break,
                // The threads of the intake live as long as the process.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            wait = Duration::ZERO;
        }
        let now = now();
        if now < self.next_tick {
            return None;
        }
        self.next_tick = now + TICK;
        let files = &mut self.files;
        self.analyzer.release(now, |packet| {
            if let Some(files) = files {
                files.put(packet, now);
            }
        });
        if let Some(files) = &mut self.files {
            files.flush(now);
        }
        if now < self.next_second {
            return None;
        }
        self.next_second = now + 1_000_000_000;
        self.books.settle(&self.analyzer, now);
        Some(self.status())
    }

    fn take(&mut self, message: &Message) {
        let now = now();
        match Head::decode(&message.bytes).map(|head| head.kind) {
            Ok(Kind::Counts) => self
                .books
                .take(&message.bytes, self.cluster, &self.analyzer, now),
            Ok(Kind::Records) => match Batch::decode(&message.bytes) {
                Ok(batch) => {
                    // A refusal is counted, and the sender need not send the batch again.
                    let _ = self.analyzer.take(&batch, now);
                    let head = &batch.head;
                    let next = self.analyzer.lacks(head.node, head.boot, head.session);
                    if let Some(lacks) = &message.lacks {
                        lacks.fetch_max(next, Ordering::AcqRel);
                    }
                }
                Err(_) => self.garbage += 1,
            },
            Ok(Kind::Ack) | Err(_) => self.garbage += 1,
        }
    }

    /// Writes what waits.
    pub(super) fn close(&mut self) -> Status {
        let now = now();
        let files = &mut self.files;
        self.analyzer.flush(|packet| {
            if let Some(files) = files {
                files.put(packet, now);
            }
        });
        if let Some(files) = &mut self.files {
            files.flush(now);
        }
        self.books.settle(&self.analyzer, now);
        self.status()
    }

    fn status(&self) -> Status {
        let files = self.files.as_ref();
        let dropped = &self.dropped;
        Status {
            account: self.books.account(),
            counters: self.analyzer.counters(),
            written: files.map_or(0, |files| files.written),
            unwritten: files.map_or(0, |files| files.unwritten),
            dropped: dropped.datagrams.load(Ordering::Relaxed),
            refused: self.garbage
                + self.books.refused
                + dropped.connections.load(Ordering::Relaxed),
            trouble: files.and_then(|files| files.trouble.clone()),
        }
    }
}

/// Nanoseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
