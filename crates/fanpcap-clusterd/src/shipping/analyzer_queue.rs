//! Sends one analyzer its records, as batches or as DiCAP's datagrams, and counts them.

use std::io;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use fanpcap_cluster::loss_account::Report;
use fanpcap_cluster::record::{BatchBuilder, CountsEncoder, Head, Record};
use fanpcap_cluster::{Part, Revision};

use super::RecordTransport;
use super::secured::lock;
use super::shipping_thread::{SentBatch, Shared, ShippingThread, WINDOW};
use crate::dicap;
use crate::keyring::Keyring;

/// Bytes of a batch over TCP.
const BATCH: usize = 32 << 10;

/// When this many batches wait for an acknowledgement, only full batches are sent. Without this
/// limit, a quiet node's small batches would fill the window while its analyzer is gone. Normally
/// about twenty batches of a quiet node wait for an acknowledgement.
const BEHIND: usize = 512;

/// What became of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shipped {
    /// Records that were given to the queues.
    pub taken: u64,
    /// Records that were sent; over TCP, records that were acknowledged.
    pub sent: u64,
    /// Records lost at this node: an analyzer was slow, out of reach, or not known.
    pub lost: u64,
    /// Connections that broke.
    pub broken: u64,
}

impl AddAssign for Shipped {
    fn add_assign(&mut self, other: Self) {
        self.taken += other.taken;
        self.sent += other.sent;
        self.lost += other.lost;
        self.broken += other.broken;
    }
}

#[derive(Debug)]
pub(super) struct AnalyzerQueue {
    output: RecordOutput,
    /// `None` if the queue takes no more records.
    batches: Option<Sender<SentBatch>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<u64>>,
    counts: Shipped,
}

/// The form in which records are sent.
#[derive(Debug)]
enum RecordOutput {
    Batches(BatchBuilder),
    Dicap(dicap::Sender),
}

impl AnalyzerQueue {
    pub(super) fn open(
        to: SocketAddr,
        transport: RecordTransport,
        (head, part): (Head, Part),
        link: u16,
        keyring: Arc<Keyring>,
    ) -> io::Result<Self> {
        let output = match transport {
            RecordTransport::Dicap(port) => {
                let to = SocketAddr::new(to.ip(), port.unwrap_or(to.port()));
                RecordOutput::Dicap(dicap::Sender::open(to)?)
            }
            RecordTransport::Tcp => RecordOutput::Batches(BatchBuilder::new(head, BATCH, link)),
        };
        let (batches, receiver) = channel();
        let shared = Arc::new(Shared::default());
        let counts = CountsEncoder::new(head, part);
        let shipping_thread = ShippingThread::new(to, keyring, Arc::clone(&shared), counts);
        let thread = thread::Builder::new().name("shipping".to_owned());
        let thread = thread.spawn(move || shipping_thread.run(&receiver))?;
        Ok(Self {
            output,
            batches: Some(batches),
            shared,
            thread: Some(thread),
            counts: Shipped::default(),
        })
    }

    pub(super) fn push(&mut self, revision: Revision, record: &Record<'_>) {
        self.counts.taken += 1;
        match &mut self.output {
            RecordOutput::Batches(builder) => {
                let (sequence, first) = (builder.sequence(), builder.first());
                if let Some(bytes) = builder.push(revision, record) {
                    let records = builder.first() - first;
                    self.send(sequence, records, bytes);
                }
            }
            RecordOutput::Dicap(sender) => sender.push(record.captured),
        }
    }

    /// Sends the records that have not been sent yet. At a time `now` other than 0, sends nothing
    /// if the analyzer is far behind, and an empty batch if all records were sent.
    pub(super) fn flush(&mut self, revision: Revision, now: u64) {
        if now > 0 && self.shared.held.load(Ordering::Relaxed) >= BEHIND {
            return;
        }
        match &mut self.output {
            RecordOutput::Batches(builder) => {
                let (sequence, first) = (builder.sequence(), builder.first());
                let mut batch = builder.flush();
                if batch.is_none() && now > 0 {
                    batch = builder.idle(revision, now);
                }
                let records = builder.first() - first;
                if let Some(bytes) = batch {
                    self.send(sequence, records, bytes);
                }
            }
            RecordOutput::Dicap(sender) => sender.flush(),
        }
    }

    /// Sends a report, in place of a report that still waits.
    pub(super) fn report(&self, report: &Arc<Report>) {
        *lock(&self.shared.report) = Some(Arc::clone(report));
    }

    fn send(&mut self, sequence: u64, records: u64, bytes: Vec<u8>) {
        let batch = SentBatch {
            sequence,
            records,
            bytes,
        };
        let has_room = self.shared.held.fetch_add(1, Ordering::Relaxed) < WINDOW;
        let batches = self.batches.as_ref().filter(|_| has_room);
        if batches.is_some_and(|batches| batches.send(batch).is_ok()) {
            return;
        }
        self.shared.held.fetch_sub(1, Ordering::Relaxed);
        if let RecordOutput::Batches(builder) = &mut self.output {
            builder.take_back();
        }
        self.counts.lost += records;
    }

    pub(super) fn shipped(&self) -> Shipped {
        let mut counts = self.counts;
        counts.sent += self.shared.shipped.load(Ordering::Relaxed);
        counts.broken += self.shared.broken.load(Ordering::Relaxed);
        if let RecordOutput::Dicap(sender) = &self.output {
            counts.sent += sender.sent;
            counts.lost += sender.lost;
        }
        counts
    }

    /// The problem of the connection, if there is one.
    pub(super) fn trouble(&self) -> Option<String> {
        let trouble = lock(&self.shared.trouble);
        Some(trouble.clone()).filter(|text| !text.is_empty())
    }

    /// Sends the records that are left, and closes the queue for further records. Its thread still
    /// waits for acknowledgements.
    pub(super) fn retire(&mut self) {
        self.flush(Revision::default(), 0);
        self.batches = None;
    }

    /// Whether all batches of a retired queue were acknowledged or given up.
    pub(super) fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Makes the thread give up batches that are not acknowledged within some seconds.
    pub(super) fn end(&self) {
        self.shared.ends.store(true, Ordering::Relaxed);
    }

    /// Waits until all batches of a retired queue are acknowledged or given up.
    pub(super) fn close(mut self) -> Shipped {
        self.end();
        let lost = self.thread.take().map(JoinHandle::join);
        let mut counts = self.shipped();
        counts.lost += lost.and_then(Result::ok).unwrap_or(0);
        counts
    }
}
