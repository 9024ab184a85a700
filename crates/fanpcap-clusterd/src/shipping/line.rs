//! A TCP connection to an analyzer, in a thread of its own: batches are kept until acknowledged.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_cli::streams;
use fanpcap_cluster::record::Head;

use super::link::{Link, LinkError};
use crate::keyring::Keyring;

/// Batches that may wait for an acknowledgement. An analyzer knows of so many whether they came.
const WINDOW: usize = 2048;

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(500);

/// After so long without an acknowledgement the connection is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// A batch on its way: its number, its records, its bytes.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) sequence: u64,
    pub(super) records: u64,
    pub(super) bytes: Vec<u8>,
}

/// What a line's thread and its lane both know.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Records that the analyzer has.
    pub(super) shipped: AtomicU64,
    /// Connections that were lost.
    pub(super) broken: AtomicU64,
    /// Why there is no connection; empty: there is one.
    pub(super) trouble: Mutex<String>,
}

/// A connection that is made anew as often as it breaks.
pub(super) struct Line {
    analyzer: SocketAddr,
    head: Head,
    keyring: Arc<Keyring>,
    shared: Arc<Shared>,
    waiting: VecDeque<Sent>,
    link: Option<Link>,
    /// What the analyzer lacked, and when that changed last.
    heard: (u64, Instant),
}

impl Line {
    pub(super) fn new(
        analyzer: SocketAddr,
        head: Head,
        keyring: Arc<Keyring>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            analyzer,
            head,
            keyring,
            shared,
            waiting: VecDeque::new(),
            link: None,
            heard: (0, Instant::now()),
        }
    }

    /// Sends what comes until its sender is gone, then what is left for as long as the patience
    /// lasts. Returns the records that the analyzer did not acknowledge.
    pub(super) fn run(mut self, batches: &Receiver<Sent>) -> u64 {
        let mut end: Option<Instant> = None;
        loop {
            let has_room = self.waiting.len() < WINDOW;
            if has_room && end.is_none() {
                match batches.recv_timeout(Duration::from_millis(20)) {
                    Ok(batch) => self.send(batch),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        end = Some(Instant::now() + 2 * PATIENCE)
                    }
                }
            } else {
                thread::sleep(Duration::from_millis(1));
            }
            self.heed();
            let is_done = end.is_some_and(|end| self.waiting.is_empty() || Instant::now() > end);
            if is_done {
                if let Some(link) = self.link.take() {
                    let _ = link.close();
                }
                return self.waiting.iter().map(|batch| batch.records).sum();
            }
        }
    }

    fn send(&mut self, batch: Sent) {
        let written = match &mut self.link {
            Some(link) => link.send(&batch.bytes),
            None => Ok(()),
        };
        self.waiting.push_back(batch);
        if written.is_err() {
            self.hang_up();
        }
    }

    /// Drops what is acknowledged; connects where there is no connection.
    fn heed(&mut self) {
        let Some(link) = &mut self.link else {
            self.connect();
            return;
        };
        let lacks = link.lacks();
        while self
            .waiting
            .front()
            .is_some_and(|batch| batch.sequence < lacks)
        {
            if let Some(batch) = self.waiting.pop_front() {
                self.shared
                    .shipped
                    .fetch_add(batch.records, Ordering::Relaxed);
            }
        }
        if link.is_over() {
            self.hang_up();
        } else if lacks != self.heard.0 || self.waiting.is_empty() {
            self.heard = (lacks, Instant::now());
            if lacks > 0 {
                self.trouble().clear();
            }
        } else if self.heard.1.elapsed() > PATIENCE {
            self.hang_up();
        }
    }

    fn hang_up(&mut self) {
        if let Some(link) = self.link.take() {
            if let Some(error) = link.close() {
                self.say(&error);
            }
            self.shared.broken.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(RETRY);
    }

    /// Connects, and sends all that is not acknowledged.
    fn connect(&mut self) {
        match Link::open(self.analyzer, self.head, &self.keyring) {
            Ok(mut link) => {
                let mut batches = self.waiting.iter();
                let again = batches.try_for_each(|batch| link.send(&batch.bytes));
                self.link = Some(link);
                self.heard = (0, Instant::now());
                if again.is_err() {
                    self.hang_up();
                }
            }
            Err(error) => {
                self.say(&error);
                thread::sleep(RETRY);
            }
        }
    }

    /// Says why there is no connection, once.
    fn say(&mut self, error: &LinkError) {
        let said = format!("analyzer {}: {error}", self.analyzer);
        let mut trouble = self.trouble();
        if *trouble != said {
            streams::note(&format!("fanpcap node: {said}\n"));
            *trouble = said;
        }
    }

    fn trouble(&self) -> MutexGuard<'_, String> {
        let trouble = self.shared.trouble.lock();
        trouble.unwrap_or_else(PoisonError::into_inner)
    }
}
