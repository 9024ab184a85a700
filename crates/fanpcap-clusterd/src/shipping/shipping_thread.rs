//! The thread that ships to an analyzer, and connects again if a connection breaks. The thread
//! keeps batches until they are acknowledged, and the newest report until it is sent.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_cluster::loss_account::Report;
use fanpcap_cluster::record::CountsEncoder;
use fanpcap_terminal::streams;

use super::connection::{CLOSED, Connection, ConnectionError, SILENT};
use super::secured::lock;
use crate::keyring::Keyring;

/// Maximum number of batches that may wait for an acknowledgement: 256 MiB. An analyzer
/// acknowledges a batch after about a second, when it has written the records. An analyzer
/// remembers which of a session's last 2 * `WINDOW` batches it has received.
pub(super) const WINDOW: usize = 8192;

/// Maximum number of batches that the thread sends before it takes new batches from the queue.
const BURST: usize = 64;

/// How long the thread waits for a batch before it checks for acknowledgements.
const LOOK: Duration = Duration::from_millis(20);

/// The time between the first attempts to connect. This time is short, because strangers can occupy
/// all connections of an analyzer only for a moment.
const FIRST_RETRY: Duration = Duration::from_millis(50);

/// After this number of failed attempts, the thread waits for [`RETRY`] between attempts.
const FIRST_ATTEMPTS: u32 = 20;

/// The time between attempts after [`FIRST_ATTEMPTS`] attempts have failed.
const RETRY: Duration = Duration::from_millis(500);

/// If the analyzer acknowledges nothing for this long, the thread closes the connection. A thread
/// that must end waits this long for acknowledgements, and then gives up the remaining batches.
const PATIENCE: Duration = Duration::from_secs(10);

/// A batch to send: its number, its number of records, and its bytes.
#[derive(Clone, Debug)]
pub(super) struct SentBatch {
    pub(super) sequence: u64,
    pub(super) records: u64,
    pub(super) bytes: Vec<u8>,
}

/// What the thread and its queue share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The newest report; `None` after the report was sent.
    pub(super) report: Mutex<Option<Arc<Report>>>,
    /// Batches that wait for an acknowledgement.
    pub(super) held: AtomicUsize,
    /// Records that the analyzer has acknowledged.
    pub(super) shipped: AtomicU64,
    pub(super) broken: AtomicU64,
    /// Why there is no connection; empty if there is one.
    pub(super) trouble: Mutex<String>,
    /// Whether the thread must give up the remaining batches after [`PATIENCE`].
    pub(super) ends: AtomicBool,
}

pub(super) struct ShippingThread {
    analyzer: SocketAddr,
    keyring: Arc<Keyring>,
    shared: Arc<Shared>,
    counts: CountsEncoder,
    /// Batches that are not acknowledged, the oldest first.
    waiting: VecDeque<SentBatch>,
    /// How many of `waiting` were sent over the present connection.
    sent: usize,
    connection: Option<Connection>,
    next_try: Instant,
    /// The number of failed attempts since an analyzer last accepted a connection.
    failed: u32,
    connected: Instant,
    /// The sequence of the first batch that the analyzer lacks, and when this sequence last
    /// changed.
    heard: (u64, Instant),
}

impl ShippingThread {
    pub(super) fn new(
        analyzer: SocketAddr,
        keyring: Arc<Keyring>,
        shared: Arc<Shared>,
        counts: CountsEncoder,
    ) -> Self {
        Self {
            analyzer,
            keyring,
            shared,
            counts,
            waiting: VecDeque::new(),
            sent: 0,
            connection: None,
            next_try: Instant::now(),
            failed: 0,
            connected: Instant::now(),
            heard: (0, Instant::now()),
        }
    }

    /// Sends batches until the queue is dropped, then those that still wait, and returns. If the
    /// queue set `ends`, gives up the remaining batches after [`PATIENCE`]. Returns the number of
    /// unacknowledged records.
    pub(super) fn run(mut self, batches: &Receiver<SentBatch>) -> u64 {
        let mut is_whole = false;
        let mut end: Option<Instant> = None;
        loop {
            if is_whole {
                thread::sleep(Duration::from_millis(1));
            } else {
                is_whole = self.take(batches).is_err();
            }
            // A thread whose queue was dropped gives up after [`PATIENCE`], even without `ends`.
            let is_alone = Arc::strong_count(&self.shared) == 1;
            if is_whole && (is_alone || self.shared.ends.load(Ordering::Relaxed)) {
                end.get_or_insert_with(|| Instant::now() + PATIENCE);
            }
            self.handle_acks();
            self.send();
            let is_over = self.waiting.is_empty() || end.is_some_and(|end| Instant::now() > end);
            if is_whole && is_over {
                if let Some(connection) = self.connection.take() {
                    let (lacks, _) = connection.close();
                    self.forget(lacks);
                }
                return self.waiting.iter().map(|batch| batch.records).sum();
            }
        }
    }

    /// Takes new batches, and waits if there is nothing to send. Fails if the queue is gone.
    fn take(&mut self, batches: &Receiver<SentBatch>) -> Result<(), RecvTimeoutError> {
        let is_busy = self.connection.is_some() && self.sent < self.waiting.len();
        let wait = if is_busy { Duration::ZERO } else { LOOK };
        match batches.recv_timeout(wait) {
            Ok(batch) => self.waiting.push_back(batch),
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(gone) => return Err(gone),
        }
        self.waiting.extend(batches.try_iter());
        Ok(())
    }

    /// Sends the report, and at most [`BURST`] of the batches that were not sent yet.
    fn send(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let report = lock(&self.shared.report).take();
        let sent = report.map_or(Ok(()), |report| {
            connection.send(&self.counts.encode(&report))
        });
        if let Err(error) = sent {
            return self.hang_up(error.into());
        }
        for batch in self.waiting.iter().skip(self.sent).take(BURST) {
            if let Err(error) = connection.send(&batch.bytes) {
                return self.hang_up(error.into());
            }
            self.sent += 1;
        }
    }

    /// Drops acknowledged batches. Connects if there is no connection.
    fn handle_acks(&mut self) {
        let Some(connection) = &mut self.connection else {
            // An analyzer closes idle connections, so the thread connects only if there is work.
            let has_work = !self.waiting.is_empty() || lock(&self.shared.report).is_some();
            if has_work && Instant::now() >= self.next_try {
                self.connect();
            }
            return;
        };
        let (lacks, is_over) = (connection.lacks(), connection.is_over());
        self.forget(lacks);
        if is_over {
            self.hang_up(ConnectionError(CLOSED.to_owned()));
        } else if lacks != self.heard.0 || self.waiting.is_empty() {
            self.heard = (lacks, Instant::now());
            // The analyzer has accepted the connection if it has acknowledged a batch, or if the
            // connection has lasted longer than [`PATIENCE`].
            if lacks > 0 || self.connected.elapsed() > PATIENCE {
                self.trouble().clear();
                self.failed = 0;
            }
        } else if self.heard.1.elapsed() > PATIENCE {
            self.hang_up(ConnectionError(SILENT.to_owned()));
        }
    }

    /// Drops the batches that the analyzer has acknowledged.
    fn forget(&mut self, lacks: u64) {
        while let Some(batch) = self.waiting.front().filter(|it| it.sequence < lacks) {
            let records = batch.records;
            self.shared.shipped.fetch_add(records, Ordering::Relaxed);
            self.shared.held.fetch_sub(1, Ordering::Relaxed);
            self.waiting.pop_front();
            self.sent = self.sent.saturating_sub(1);
        }
    }

    /// Closes the connection. Reports the analyzer's reason, or `otherwise` if it gave none.
    fn hang_up(&mut self, otherwise: ConnectionError) {
        if let Some(connection) = self.connection.take() {
            let (lacks, error) = connection.close();
            self.forget(lacks);
            self.say(error.unwrap_or(otherwise));
            self.shared.broken.fetch_add(1, Ordering::Relaxed);
        }
        self.wait();
    }

    /// Delays the next attempt to connect.
    fn wait(&mut self) {
        self.failed = self.failed.saturating_add(1);
        let pause = if self.failed <= FIRST_ATTEMPTS {
            FIRST_RETRY
        } else {
            RETRY
        };
        self.next_try = Instant::now() + pause;
    }

    /// Connects. All batches that are not acknowledged are sent again.
    fn connect(&mut self) {
        match Connection::open(self.analyzer, &self.keyring) {
            Ok(connection) => {
                self.connection = Some(connection);
                self.counts.restart();
                self.sent = 0;
                self.connected = Instant::now();
                self.heard = (0, Instant::now());
            }
            Err(error) => {
                self.say(error);
                self.wait();
            }
        }
    }

    /// Reports why there is no connection, unless it is the same reason as before.
    fn say(&mut self, ConnectionError(error): ConnectionError) {
        let said = format!("analyzer {}: {error}", self.analyzer);
        let mut trouble = self.trouble();
        if *trouble != said {
            streams::note(&format!("fanpcap node: {said}\n"));
            *trouble = said;
        }
    }

    fn trouble(&self) -> MutexGuard<'_, String> {
        lock(&self.shared.trouble)
    }
}
