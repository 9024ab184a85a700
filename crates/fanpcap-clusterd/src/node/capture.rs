//! Capture mode: a thread reads records from the ring buffers, and ships them and the counts.
//!
//! Each ring buffer holds the position up to which it was read. After an agent was killed, the next
//! agent begins at that position. Only the batches that the killed agent had begun are lost.

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
use fanpcap_linux::bpf::RingMapping;
use fanpcap_linux::wait::clock;
use fanpcap_ring::{Labelled, LinkInfo, Records};
use fanpcap_select::Claim;
use fanpcap_select::record::flags_of;

use super::say;
use crate::shipping::{Shipped, Shipper};

/// The pause of the thread when there is nothing to read.
const PAUSE: Duration = Duration::from_millis(1);

/// The longest time that a record waits for its batch to become full.
const FLUSH: Duration = Duration::from_millis(100);

/// The number of marks that are remembered, because the ring buffers may still have their records.
const MARKS: usize = 64;

/// A message to the thread that ships records.
#[derive(Debug)]
enum CaptureMessage {
    /// A new BPF program writes to these ring buffers.
    Rings(Vec<RingMapping>),
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

    /// Makes the thread read these ring buffers, after the rest of the previous ring buffers.
    pub(super) fn read(&self, rings: Vec<RingMapping>) {
        self.tell(CaptureMessage::Rings(rings));
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
    records: Option<Records>,
    /// How many times a ring buffer had bytes that are not a record.
    corrupt: u64,
    marks: VecDeque<(u32, Revision)>,
    flushed: Instant,
}

impl Worker {
    fn new(shipper: Shipper, shipped: Arc<Mutex<Shipped>>) -> Self {
        Self {
            shipper,
            shipped,
            records: None,
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
            CaptureMessage::Rings(rings) => {
                while self.drain() {}
                self.records = Records::new(rings, &ETHERNET, clock::realtime_offset_ns);
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

    /// Ships the records that are in the ring buffers now. Returns whether there were any.
    fn drain(&mut self) -> bool {
        let Some(records) = self.records.as_mut().filter(|records| records.is_ready()) else {
            return false;
        };
        if !records.open() {
            return false;
        }
        loop {
            match records.next_labelled() {
                Ok(Some(record)) => ship(&mut self.shipper, &self.marks, &record),
                Ok(None) => break,
                // `next_labelled` has skipped the unread records of this ring buffer's snapshot.
                Err(corrupt) => {
                    self.corrupt += 1;
                    if self.corrupt.is_power_of_two() {
                        say(&format!("ring buffer: {corrupt} ({} times)", self.corrupt));
                    }
                }
            }
        }
        records.release();
        true
    }
}

/// Remembers the topology of a mark. If loading the table fails, another topology gets the mark.
fn remember(marks: &mut VecDeque<(u32, Revision)>, mark: u32, revision: Revision) {
    marks.retain(|(known, _)| *known != mark);
    marks.push_front((mark, revision));
    marks.truncate(MARKS);
}

fn ship(to: &mut Shipper, marks: &VecDeque<(u32, Revision)>, record: &Labelled<'_>) {
    let Some((bucket, claim)) = flags_of(record.flags) else {
        return;
    };
    let found = marks.iter().find(|(mark, _)| *mark == record.last);
    // A record with an unknown mark gets revision 0, so an analyzer refuses the record.
    let revision = found.map_or(Revision(0), |(_, revision)| *revision);
    let stamp = record.frame.stamp();
    let stamp = u64::from(stamp.seconds) * 1_000_000_000 + u64::from(stamp.nanoseconds);
    to.push(
        revision,
        &Record {
            stamp,
            wire_length: record.frame.wire_len(),
            bucket,
            marked: claim == Claim::Shared,
            captured: record.frame.data(),
        },
    );
}

/// The link layer of records whose device does not matter.
const ETHERNET: LinkInfo = LinkInfo {
    protocol: 0,
    ifindex: 0,
    hatype: 1,
    pkttype: 0,
};

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
