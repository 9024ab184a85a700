//! Sends records to the analyzers as batches in UDP datagrams. A lost one shows at the analyzer, by
//! the numbers of batches.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use fanpcap_cluster::Revision;
use fanpcap_cluster::record::{BatchBuilder, Head, Record};

/// Bytes of a batch: a datagram that needs no fragments.
const BATCH: usize = 1400;

/// Link type of Ethernet (`LINKTYPE_ETHERNET`).
const ETHERNET: u16 = 1;

/// Takes records for the analyzers.
pub(super) trait Ship {
    /// Sends to these analyzers from now on: bucket `b` to the one at `b` modulo their number.
    fn follow(&mut self, analyzers: &[SocketAddr]);
    /// Takes a record that was captured by the topology of `revision`.
    fn ship(&mut self, revision: Revision, record: &Record<'_>);
    /// Sends what waits for more records.
    fn flush(&mut self);
}

/// Sends batches by UDP.
#[derive(Debug)]
pub(super) struct Datagrams {
    socket: Option<UdpSocket>,
    head: Head,
    lines: Vec<(SocketAddr, BatchBuilder)>,
}

impl Datagrams {
    /// Sends from this address of the node.
    pub(super) fn new(from: IpAddr, head: Head) -> Self {
        Self {
            socket: UdpSocket::bind((from, 0)).ok(),
            head,
            lines: Vec::new(),
        }
    }

    fn send(&self, analyzer: SocketAddr, batch: &[u8]) {
        if let Some(socket) = &self.socket {
            // The analyzer counts the batches that it does not get.
            let _ = socket.send_to(batch, analyzer);
        }
    }
}

impl Ship for Datagrams {
    fn follow(&mut self, analyzers: &[SocketAddr]) {
        if analyzers
            .iter()
            .eq(self.lines.iter().map(|(analyzer, _)| analyzer))
        {
            return;
        }
        self.flush();
        let mut old = std::mem::take(&mut self.lines);
        let line = |analyzer: &SocketAddr| {
            // Who stays goes on with the numbers of its batches.
            let found = old.iter().position(|(known, _)| known == analyzer);
            found.map_or_else(
                || (*analyzer, BatchBuilder::new(self.head, BATCH, ETHERNET)),
                |at| old.swap_remove(at),
            )
        };
        self.lines = analyzers.iter().map(line).collect();
    }

    fn ship(&mut self, revision: Revision, record: &Record<'_>) {
        let count = self.lines.len().max(1);
        let Some((analyzer, builder)) = self.lines.get_mut(usize::from(record.bucket) % count)
        else {
            return;
        };
        let analyzer = *analyzer;
        if let Some(batch) = builder.push(revision, record) {
            self.send(analyzer, &batch);
        }
    }

    fn flush(&mut self) {
        let flushed = self.lines.iter_mut();
        let batches: Vec<(SocketAddr, Vec<u8>)> = flushed
            .filter_map(|(analyzer, builder)| Some((*analyzer, builder.flush()?)))
            .collect();
        for (analyzer, batch) in batches {
            self.send(analyzer, &batch);
        }
    }
}
