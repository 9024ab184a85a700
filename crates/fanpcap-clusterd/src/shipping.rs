//! Ships a node's records and counts to the analyzers.
//!
//! Each analyzer has a queue with its own connection and session. With n analyzers, records and
//! counts of bucket `b` go to analyzer `b` modulo n. A queue never makes the capture wait: if a
//! queue is full, records are lost, and counted as lost.

mod secured;
mod connection;
mod shipping_thread;
mod analyzer_queue;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use fanpcap_cluster::loss_account::Report;
use fanpcap_cluster::record::{Head, Kind, Record};
use fanpcap_cluster::{NodeId, Part, Revision};

use crate::keyring::Keyring;

use analyzer_queue::AnalyzerQueue;
pub use analyzer_queue::Shipped;

/// Maximum number of queues for former analyzers. Each queue holds at most 256 MiB of records.
const RETIRED: usize = 8;

/// How records get to an analyzer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordTransport {
    /// A TCP connection to the analyzer. Batches without an acknowledgement are sent again.
    Tcp,
    /// DiCAP's datagrams to this port; `None`: to analyzers' own ports. Losses are not noticed.
    Dicap(Option<u16>),
}

/// A shipper's node, session and transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShipperSettings {
    /// The cluster's id ([`ClusterId`](fanpcap_cluster::control::ClusterId)).
    pub cluster: u64,
    /// This node.
    pub node: NodeId,
    /// A number drawn at random when the node's machine booted.
    pub boot: u64,
    /// A random number: two shippers of a node must not have the same session.
    pub session: u64,
    /// Link type of the packets (`LINKTYPE_`).
    pub link: u16,
    /// How records get to the analyzers.
    pub transport: RecordTransport,
}

/// Ships records.
#[derive(Debug)]
pub struct Shipper {
    settings: ShipperSettings,
    keyring: Arc<Keyring>,
    analyzers: Vec<SocketAddr>,
    queues: Vec<AnalyzerQueue>,
    /// How many sessions were begun.
    sessions: u64,
    /// Queues for former analyzers, until all their batches are acknowledged or given up.
    retired: Vec<AnalyzerQueue>,
    /// The counts of closed queues, and of records that were lost because there was no analyzer.
    past: Shipped,
}

impl Shipper {
    /// A shipper that has no analyzers yet. Until [`Shipper::follow`] names analyzers, all records
    /// count as lost. Connections use `keyring`'s keys.
    pub fn new(settings: ShipperSettings, keyring: Arc<Keyring>) -> Self {
        Self {
            settings,
            keyring,
            analyzers: Vec::new(),
            queues: Vec::new(),
            sessions: 0,
            retired: Vec::new(),
            past: Shipped::default(),
        }
    }

    /// From now on, ships to these analyzers. Does nothing if the list is the same as before.
    ///
    /// # Errors
    /// Fails if a socket or a thread can't be made. Then the previous analyzers still get records.
    pub fn follow(&mut self, analyzers: &[SocketAddr]) -> io::Result<()> {
        if self.analyzers == analyzers {
            return Ok(());
        }
        let mut queues = Vec::new();
        for (&analyzer, part) in analyzers.iter().zip(Part::each(analyzers.len())) {
            let settings = &self.settings;
            let head = Head {
                kind: Kind::Records,
                length: 0,
                cluster: settings.cluster,
                node: settings.node,
                boot: settings.boot,
                session: settings.session.wrapping_add(self.sessions),
            };
            self.sessions += 1;
            let keyring = Arc::clone(&self.keyring);
            let queue = AnalyzerQueue::open(
                analyzer,
                settings.transport,
                (head, part),
                settings.link,
                keyring,
            );
            queues.push(queue?);
        }
        self.retire();
        self.queues = queues;
        let surplus = self.retired.len().saturating_sub(RETIRED);
        self.retired
            .iter()
            .take(surplus)
            .for_each(AnalyzerQueue::end);
        self.analyzers = analyzers.to_vec();
        Ok(())
    }

    fn retire(&mut self) {
        self.queues.iter_mut().for_each(AnalyzerQueue::retire);
        self.retired.append(&mut self.queues);
    }

    /// Ships a record that the node captured while it followed the topology of `revision`.
    pub fn push(&mut self, revision: Revision, record: &Record<'_>) {
        let count = self.queues.len().max(1);
        match self.queues.get_mut(usize::from(record.bucket) % count) {
            Some(queue) => queue.push(revision, record),
            None => self.past.lost += 1,
        }
    }

    /// Ships records that wait for their batch to become full. Call it ten times a second: an
    /// analyzer can deliver records only up to the time that all nodes have reached. `now` is in
    /// nanoseconds since 1970.
    pub fn flush(&mut self, revision: Revision, now: u64) {
        for queue in &mut self.queues {
            queue.flush(revision, now);
        }
        self.close_retired();
    }

    /// Sends each analyzer its part of a report. A newer part replaces an older unsent part.
    pub fn report(&mut self, report: Report) {
        let report = Arc::new(report);
        self.queues.iter().for_each(|queue| queue.report(&report));
        self.close_retired();
    }

    /// Closes retired queues whose threads have ended.
    fn close_retired(&mut self) {
        let all = std::mem::take(&mut self.retired);
        let (done, left): (Vec<_>, _) = all.into_iter().partition(AnalyzerQueue::is_done);
        self.retired = left;
        done.into_iter()
            .for_each(|retired| self.past += retired.close());
    }

    /// How many records were taken, sent and lost.
    pub fn shipped(&self) -> Shipped {
        let mut all = self.past;
        let queues = self.queues.iter().chain(&self.retired);
        queues.for_each(|queue| all += queue.shipped());
        all
    }

    /// The problems of the connections to analyzers; empty if there are none.
    pub fn trouble(&self) -> String {
        let troubles = self.queues.iter().filter_map(AnalyzerQueue::trouble);
        troubles.collect::<Vec<String>>().join("; ")
    }

    /// Ships the records that are left, and waits some seconds for the missing acknowledgements.
    pub fn close(mut self) -> Shipped {
        self.retire();
        self.retired.iter().for_each(AnalyzerQueue::end);
        for queue in self.retired {
            self.past += queue.close();
        }
        self.past
    }
}

#[cfg(test)]
mod tests;
