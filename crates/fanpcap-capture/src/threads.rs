//! Starts the threads, asks them for their counters, and waits until they have ended.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use fanpcap_linux::wait::clock;
use fanpcap_pcap::Break;

use crate::shared::{Shared, ThreadCounts};
use crate::thread::{Done, Reader};

/// The threads that were started.
pub struct Threads {
    /// The time at which the first handle began to receive, by [`clock::monotonic_ns`].
    pub start_ns: u64,
    shared: Arc<Shared>,
    ends: Vec<Break>,
    running: Vec<JoinHandle<Done>>,
}

impl Threads {
    /// No threads yet. `limit` is the maximum number of packets of all threads together.
    pub fn new(limit: Option<u64>) -> Self {
        Self {
            start_ns: clock::monotonic_ns(),
            shared: Arc::new(Shared::new(limit)),
            ends: Vec::new(),
            running: Vec::new(),
        }
    }

    /// Starts the thread with the next number.
    ///
    /// # Errors
    /// The system can't start another thread.
    pub fn start(&mut self, reader: Reader) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let end = reader.handle.breaker();
        let named = thread::Builder::new().name(format!("capture-{}", reader.number));
        shared.add();
        let running = named.spawn(move || reader.run(&shared));
        self.running.push(running.context("starting a thread")?);
        self.ends.push(end);
        Ok(())
    }

    /// Waits until each thread has its share of the packets, or the capture is to end.
    pub fn await_begin(&self) {
        self.shared.await_begin();
    }

    /// The threads' counters. A thread that does not answer in time keeps its previous counters.
    pub fn ask(&self) -> Vec<ThreadCounts> {
        self.shared.ask(|| self.wake())
    }

    /// Ends the threads' waits for packets.
    fn wake(&self) {
        self.ends.iter().for_each(Break::now);
    }

    /// Waits for all threads and returns their results in order.
    ///
    /// # Errors
    /// A thread panicked.
    pub fn join(mut self) -> Result<Vec<Done>> {
        while self.running.iter().any(|thread| !thread.is_finished()) {
            // Wake the threads repeatedly: a thread that checked for the end just before it began
            // to wait would miss a single wake-up.
            self.wake();
            thread::sleep(Duration::from_millis(10));
        }
        let panicked = |_| anyhow!("a thread panicked");
        let running = self.running.drain(..);
        running
            .map(|thread| thread.join().map_err(panicked))
            .collect()
    }
}
