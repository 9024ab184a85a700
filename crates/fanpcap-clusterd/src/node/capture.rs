//! Capture mode: a thread reads records from the node's pool, and ships them and the counts.
//!
//! The pool holds the positions up to which it was read. After an agent was killed, the next agent
//! begins at these positions. Only the batches that the killed agent had begun are lost.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_cluster::Revision;
use fanpcap_cluster::loss_account::Report;
use fanpcap_cluster::record::Record;
use fanpcap_linux::wait::clock;
use fanpcap_ring::{Frame, Layout as _, Pool, PoolMemory};
use fanpcap_select::Claim;
use fanpcap_select::record::flags_of;
use fanpcap_xdp::CLOCKS;

use super::say;
use crate::shipping::{Shipped, Shipper};

/// The pause of the thread when there is nothing to read.
const PAUSE: Duration = Duration::from_millis(1);

/// The longest time that a record waits for its batch to become full.
const FLUSH: Duration = Duration::from_millis(100);

/// The number of marks that are remembered, because the pools may still have their records.
const MARKS: usize = 64;

/// A message to the thread that ships records.
#[derive(Debug)]
enum CaptureMessage {
    /// The BPF programs write to these pools.
    Pools(Vec<PoolMemory>),
    /// Records with this mark belong to the topology of this revision.
    Mark(u32, Revision),
    Analyzers(Vec<SocketAddr>),
    Report(Box<Report>),
}

/// The handle of the thread that ships records and reports.
#[derive(Debug)]
pub(super) struct Capture {
    news: Option<Sender<CaptureMessage>>,
    thread: Option<JoinHandle<()>>,
    shipped: Arc<Mutex<Shipped>>,
}

impl Capture {
    pub(super) fn start(shipper: Shipper) -> Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let shipped = Arc::new(Mutex::new(Shipped::default()));
        let worker = Worker::new(shipper, Arc::clone(&shipped));
        let thread = thread::Builder::new().name("shipping".to_owned());
        let thread = thread.spawn(move || worker.run(&receiver));
        Ok(Self {
            news: Some(sender),
            thread: Some(thread.context("starting a thread")?),
            shipped,
        })
    }

    /// Makes the thread read these pools, after the rest of the previous pools.
    pub(super) fn read(&self, pools: Vec<PoolMemory>) {
        self.tell(CaptureMessage::Pools(pools));
    }

    /// Sets the topology of the records with this mark.
    pub(super) fn mark(&self, mark: u32, revision: Revision) {
        self.tell(CaptureMessage::Mark(mark, revision));
    }

    /// From now on, ships to these analyzers.
    pub(super) fn follow(&self, analyzers: &[SocketAddr]) {
        self.tell(CaptureMessage::Analyzers(analyzers.to_vec()));
    }

    pub(super) fn report(&self, report: Report) {
        self.tell(CaptureMessage::Report(Box::new(report)));
    }

    pub(super) fn shipped(&self) -> Shipped {
        *self.shipped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, news: CaptureMessage) {
        if let Some(sender) = &self.news {
            // Sending can't fail, because the thread ends only when `self` is dropped.
            let _ = sender.send(news);
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.news = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    shipper: Shipper,
    shipped: Arc<Mutex<Shipped>>,
    /// The pool of the present BPF programs, and pools of earlier ones.
    pools: Vec<Pool>,
    /// How many times a pool had bytes that are not a record.
    corrupt: u64,
    marks: VecDeque<(u32, Revision)>,
    flushed: Instant,
}

impl Worker {
    fn new(shipper: Shipper, shipped: Arc<Mutex<Shipped>>) -> Self {
        Self {
            shipper,
            shipped,
            pools: Vec::new(),
            corrupt: 0,
            marks: VecDeque::new(),
            flushed: Instant::now(),
        }
    }

    fn run(mut self, news: &Receiver<CaptureMessage>) {
        loop {
            match news.try_recv() {
                Ok(news) => self.take(news),
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    if !self.drain() {
                        thread::sleep(PAUSE);
                    }
                    if self.flushed.elapsed() >= FLUSH {
                        self.flush();
                    }
                }
            }
        }
        self.shipper.close();
    }

    /// Ships incomplete batches. Empty batches have the revision of the node's newest topology.
    fn flush(&mut self) {
        let newest = self
            .marks
            .front()
            .map_or(Revision(0), |(_, revision)| *revision);
        let now = clock::monotonic_ns().wrapping_add(clock::realtime_offset_ns());
        self.shipper.flush(newest, now);
        self.flushed = Instant::now();
        let shipped = self.shipper.shipped();
        *self.shipped.lock().unwrap_or_else(PoisonError::into_inner) = shipped;
    }

    fn take(&mut self, news: CaptureMessage) {
        match news {
            CaptureMessage::Pools(pools) => {
                while self.drain() {}
                let pools = pools.into_iter().map(|it| Pool::new(it, 0, CLOCKS));
                self.pools = pools.collect();
            }
            CaptureMessage::Mark(mark, revision) => {
                remember(&mut self.marks, mark, revision);
            }
            CaptureMessage::Report(report) => self.shipper.report(*report),
            CaptureMessage::Analyzers(analyzers) => {
                if let Err(error) = self.shipper.follow(&analyzers) {
                    say(&format!("records still go to the old analyzers: {error}"));
                }
            }
        }
    }

    /// Ships the records that are in the pools now, the oldest first. Returns whether there were
    /// any. A record that comes meanwhile may have to wait for the next call.
    fn drain(&mut self) -> bool {
        if !self.pools.iter().any(Pool::is_ready) {
            return false;
        }
        self.pools.iter_mut().for_each(|it| _ = it.open());
        while let Some(pool) = oldest(&mut self.pools) {
            match pool.next_frame() {
                Ok(Some(record)) => ship(&mut self.shipper, &self.marks, &record),
                Ok(None) => {}
                // `next_frame` has skipped the rest of this block.
                Err(corrupt) => {
                    self.corrupt += 1;
                    if self.corrupt.is_power_of_two() {
                        say(&format!("pool: {corrupt} ({} times)", self.corrupt));
                    }
                }
            }
        }
        self.pools.iter_mut().for_each(|it| _ = it.release());
        true
    }
}

/// The pool with the oldest unread record.
fn oldest(pools: &mut [Pool]) -> Option<&mut Pool> {
    let heads = pools.iter_mut().filter_map(|it| Some((it.peek()?, it)));
    Some(heads.min_by_key(|(stamp, _)| *stamp)?.1)
}

/// Remembers the topology of a mark. If loading the table fails, another topology gets the mark.
fn remember(marks: &mut VecDeque<(u32, Revision)>, mark: u32, revision: Revision) {
    marks.retain(|(known, _)| *known != mark);
    marks.push_front((mark, revision));
    marks.truncate(MARKS);
}

fn ship(to: &mut Shipper, marks: &VecDeque<(u32, Revision)>, record: &Frame<'_>) {
    let Some((bucket, claim)) = flags_of(record.record_flags()) else {
        return;
    };
    // The record has the mark in the place of a filter's number.
    let found = marks.iter().find(|(mark, _)| *mark == record.filter());
    // A record with an unknown mark gets revision 0, so an analyzer refuses the record.
    let revision = found.map_or(Revision(0), |(_, revision)| *revision);
    let stamp = record.stamp();
    let stamp = u64::from(stamp.seconds) * 1_000_000_000 + u64::from(stamp.nanoseconds);
    to.push(
        revision,
        &Record {
            stamp,
            wire_length: record.wire_len(),
            bucket,
            marked: claim == Claim::Shared,
            captured: record.data(),
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_in_use_survives_any_number_of_failed_loads() {
        let mut marks = VecDeque::new();
        remember(&mut marks, 7, Revision(70));
        for attempt in 0..1000 {
            remember(&mut marks, 8, Revision(80 + attempt % 2));
        }
        assert_eq!(marks, [(8, Revision(81)), (7, Revision(70))]);
    }
}
