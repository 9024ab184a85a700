//! Counts the demo's packets in two ways: from the nodes' capture files, and from the counts that
//! the nodes report.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use fanpcap_buckets::layout::BUCKETS;
use fanpcap_cluster::NodeId;
use fanpcap_cluster::loss_account::{Ledger, LedgerSettings, Report, Span};
use fanpcap_cluster::record::{CountsDecoder, HEAD_BYTES, Head};
use fanpcap_select::{Selection, digest};
use fanpcap_wire::Frame;

use crate::traffic;

/// How many packets were captured once, twice or not at all, according to the files of all nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Truth {
    pub(crate) offered: u64,
    /// Packets that exactly one node captured.
    pub(crate) once: u64,
    /// Packets that two nodes captured.
    pub(crate) doubled: u64,
    /// Packets that no node captured.
    pub(crate) missed: u64,
}

impl Truth {
    /// Counts the packets with these numbers in the files of all nodes.
    pub(crate) fn of(numbers: Range<u64>, files: &[Vec<u64>]) -> Self {
        let captured = times(files);
        let mut truth = Self::default();
        for number in numbers {
            truth.offered += 1;
            match captured.get(&number) {
                None => truth.missed += 1,
                Some(1) => truth.once += 1,
                Some(_) => truth.doubled += 1,
            }
        }
        truth
    }

    /// How far the number of missed packets is outside of `lost`, the span according to the nodes'
    /// counts. The result is 0 if the number is in the span.
    pub(crate) fn unaccounted(&self, lost: Span) -> u64 {
        let missed = i64::try_from(self.missed).unwrap_or(i64::MAX);
        let outside = (lost.least - missed).max(missed - lost.most).max(0);
        outside.unsigned_abs()
    }
}

/// How often each packet was captured.
fn times(files: &[Vec<u64>]) -> HashMap<u64, u32> {
    let mut times = HashMap::new();
    for number in files.iter().flatten() {
        *times.entry(*number).or_default() += 1;
    }
    times
}

/// The account that an analyzer would make of the nodes' counts.
pub(crate) struct LossAccount {
    reports: Receiver<io::Result<Report>>,
    ledger: Ledger,
    /// The cluster's selection.
    selection: Selection,
}

/// The largest difference between the times at which nodes count the same packet. The difference is
/// small, because all nodes have the same clock, and the mirror port is on the same machine.
const SKEW_NS: u64 = 20_000_000;

impl LossAccount {
    /// An account of the reports that nodes send to this listener.
    ///
    /// # Errors
    /// Fails if the clock is set to a time before 1970.
    pub(crate) fn open(listener: TcpListener) -> Result<Self> {
        let (to, reports) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let to = to.clone();
                thread::spawn(move || take_reports(stream, &to));
            }
        });
        let settings = LedgerSettings {
            skew: SKEW_NS,
            begin: now_ns()?,
            analyzed: true,
        };
        Ok(Self {
            reports,
            ledger: Ledger::new(settings),
            selection: Selection::default(),
        })
    }

    /// Sets the cluster's selection.
    pub(crate) fn select(&mut self, selection: Selection) {
        self.selection = selection;
    }

    /// Takes the reports that have come. Returns the node of each report that was made after
    /// `since`.
    ///
    /// # Errors
    /// Fails if a report can't be read, is impossible, or contradicts an earlier report.
    pub(crate) fn take(&mut self, since: u64) -> Result<Vec<NodeId>> {
        let mut newer = Vec::new();
        while let Ok(report) = self.reports.try_recv() {
            let report = report?;
            if report.summary.stamp > since {
                newer.push(report.summary.node);
            }
            self.ledger.take(report)?;
            self.ledger.settle();
        }
        Ok(newer)
    }

    /// Records that a node died at `at`. `file` has the numbers of the packets in the node's file.
    pub(crate) fn end_node(&mut self, node: NodeId, at: u64, file: &[u64]) {
        let mut captured = Box::new([Span::default(); BUCKETS]);
        for number in file {
            captured[self.bucket(*number)] += Span::exactly(1);
        }
        self.ledger.end(node, at, Some(captured));
    }

    /// The number of lost packets, according to the nodes' counts. A packet in the files of two
    /// nodes counts once, because an analyzer or `fanpcap cluster merge` removes the duplicate.
    pub(crate) fn lost(&mut self, files: &[Vec<u64>]) -> Span {
        let mut doubles = vec![0; BUCKETS];
        for (number, times) in times(files) {
            doubles[self.bucket(number)] += u64::from(times - 1);
        }
        for (bucket, doubles) in doubles.into_iter().enumerate() {
            self.ledger.set_doubles(bucket, doubles);
        }
        self.ledger.account().total.lost
    }

    /// The bucket of a packet of the demo.
    fn bucket(&self, number: u64) -> usize {
        let bytes = traffic::frame(number);
        let frame = Frame {
            bytes: &bytes,
            tag: None,
        };
        let (hash, _) = digest(&frame, self.selection.initial);
        hash as usize % BUCKETS
    }
}

/// Passes on the reports of a connection, until the connection ends.
fn take_reports(mut stream: TcpStream, to: &Sender<io::Result<Report>>) -> io::Result<()> {
    let mut counts = CountsDecoder::default();
    loop {
        let mut message = vec![0; HEAD_BYTES];
        stream.read_exact(&mut message)?;
        let head = Head::decode(&message).map_err(io::Error::other)?;
        message.resize(head.length, 0);
        stream.read_exact(&mut message[HEAD_BYTES..])?;
        let report = counts.decode(&message).map(|(_, report)| report);
        let is_wrong = report.is_err();
        if to.send(report.map_err(io::Error::other)).is_err() || is_wrong {
            return Ok(());
        }
    }
}

/// Nanoseconds since 1970.
///
/// # Errors
/// Fails if the clock is set to a time before 1970.
pub(crate) fn now_ns() -> Result<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(u64::try_from(since.as_nanos())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_admit_is_accounted_for() {
        let truth = Truth::of(0..5, &[vec![0, 1], vec![1, 3, 9]]);
        let found = [truth.offered, truth.once, truth.doubled, truth.missed];
        assert_eq!(found, [5, 2, 1, 2]);
        assert_eq!(truth.unaccounted(Span { least: 0, most: 5 }), 0);
        assert_eq!(truth.unaccounted(Span::exactly(2)), 0);
        assert_eq!(truth.unaccounted(Span::exactly(1)), 1);
        assert_eq!(truth.unaccounted(Span { least: 5, most: 7 }), 3);
    }
}
