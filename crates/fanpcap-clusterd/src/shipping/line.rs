//! A TCP connection to an analyzer, in a thread of its own: batches are kept until acknowledged.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_cluster::record::{ACK_BYTES, decode_ack};

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
}

/// A connection that is made anew as often as it breaks.
pub(super) struct Line {
    analyzer: SocketAddr,
    shared: Arc<Shared>,
    waiting: VecDeque<Sent>,
    link: Option<Link>,
}

/// A connection, and the first batch that the analyzer lacks.
struct Link {
    stream: TcpStream,
    lacks: Arc<AtomicU64>,
    acks: thread::JoinHandle<()>,
    /// When that changed last.
    heard: (u64, Instant),
}

impl Drop for Link {
    fn drop(&mut self) {
        // The thread that reads acknowledgements has the connection too, and ends with it.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Line {
    pub(super) fn new(analyzer: SocketAddr, shared: Arc<Shared>) -> Self {
        Self {
            analyzer,
            shared,
            waiting: VecDeque::new(),
            link: None,
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
                return self.waiting.iter().map(|batch| batch.records).sum();
            }
        }
    }

    fn send(&mut self, batch: Sent) {
        let written = match &mut self.link {
            Some(link) => link.stream.write_all(&batch.bytes),
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
        let lacks = link.lacks.load(Ordering::Acquire);
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
        if link.acks.is_finished() {
            self.hang_up();
        } else if lacks != link.heard.0 || self.waiting.is_empty() {
            link.heard = (lacks, Instant::now());
        } else if link.heard.1.elapsed() > PATIENCE {
            self.hang_up();
        }
    }

    fn hang_up(&mut self) {
        if self.link.take().is_some() {
            self.shared.broken.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(RETRY);
    }

    /// Connects, and sends all that is not acknowledged.
    fn connect(&mut self) {
        let connected = self.try_connect();
        match connected {
            Ok(link) => {
                self.link = Some(link);
                let again = self.link.as_mut().map(|link| {
                    let mut batches = self.waiting.iter();
                    batches.try_for_each(|batch| link.stream.write_all(&batch.bytes))
                });
                if again.is_some_and(|again| again.is_err()) {
                    self.hang_up();
                }
            }
            Err(_) => thread::sleep(RETRY),
        }
    }

    fn try_connect(&self) -> io::Result<Link> {
        let stream = TcpStream::connect_timeout(&self.analyzer, PATIENCE)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let lacks = Arc::new(AtomicU64::new(0));
        let (acks, heard) = (stream.try_clone()?, Arc::clone(&lacks));
        let acks = thread::Builder::new()
            .name("acks".to_owned())
            .spawn(move || listen(acks, &heard))?;
        Ok(Link {
            stream,
            lacks,
            acks,
            heard: (0, Instant::now()),
        })
    }
}

/// Reads acknowledgements until the connection ends.
fn listen(mut stream: TcpStream, lacks: &AtomicU64) {
    let mut ack = [0; ACK_BYTES];
    while stream.read_exact(&mut ack).is_ok() {
        let Ok((_, next)) = decode_ack(&ack) else {
            break;
        };
        lacks.fetch_max(next, Ordering::AcqRel);
    }
    let _ = stream.shutdown(Shutdown::Both);
}
