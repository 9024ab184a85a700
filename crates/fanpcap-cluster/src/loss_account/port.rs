//! The packets that a node's port certainly did not deliver in the last minutes.

use std::collections::VecDeque;

use fanpcap_buckets::layout::BUCKETS;

use super::span::{Span, sum};

/// The length of the time that a verdict is about, in nanoseconds: the last five minutes.
pub(super) const RECENT: u64 = 300_000_000_000;

/// The time between two samples, in nanoseconds.
const STEP: u64 = RECENT / 30;

/// A port that lacks fewer than this many of a million packets is not lossy.
const LOSSY: i64 = 20;

/// A port that lacks fewer than this many packets in total is not lossy.
const FEW: i64 = 3;

/// The packets that a node's port did not deliver in one run of the node's counters.
///
/// While packets come, nodes' counts can't be compared exactly: a port may lose up to two seconds
/// of a bucket's packets before the loss is certain. Such a loss may become certain only hours
/// later, when fewer packets come. It must not look like a new loss then. So the packets that a
/// lossy port may have lost are noted as old: every five minutes, and once more when the port is no
/// longer lossy.
#[derive(Clone, Debug)]
pub(super) struct Port {
    /// For each bucket, an upper bound of the lost packets that are noted as old.
    old: Box<[i64; BUCKETS]>,
    /// When the port was last judged and was not lossy, or when losses were last noted as old.
    noted: u64,
    /// The value of `lacking` when losses were last noted as old. Later losses of buckets whose
    /// traffic has stopped are added to it.
    rested: i64,
    /// Packets that the port certainly lost, without those noted as old. This number never falls.
    lacking: i64,
    /// Earlier values of `lacking`, the newest last.
    samples: VecDeque<Sample>,
    /// Lost packets in a million, for the last five minutes; 0 if the port is not lossy.
    pub(super) parts: u32,
    /// Packets that the port certainly lost, including those noted as old. This number never falls.
    in_all: i64,
    /// The value of `in_all` when [`Port::take_new`] was last called.
    in_history: i64,
}

/// How many packets the port had lost, and how many the cluster had been offered, by `time`.
#[derive(Clone, Copy, Debug)]
struct Sample {
    time: u64,
    lacking: i64,
    offered: i64,
}

impl Port {
    pub(super) fn new() -> Self {
        Self {
            old: Box::new([0; BUCKETS]),
            noted: 0,
            rested: 0,
            lacking: 0,
            samples: VecDeque::new(),
            parts: 0,
            in_all: 0,
            in_history: 0,
        }
    }

    /// Forgets the samples, because the ledger does not use the node's counts now. Losses that
    /// happen before the ledger uses the counts again stay unknown.
    pub(super) fn begin_anew(&mut self) {
        self.old.fill(0);
        self.rested = self.lacking;
        self.samples.clear();
        self.parts = 0;
    }

    /// Notes that a bucket's traffic stopped. Between the previous stop and this one, the port
    /// certainly lost `lacks` packets of the bucket.
    pub(super) fn rest(&mut self, bucket: usize, lacks: i64) {
        let old = std::mem::take(&mut self.old[bucket]);
        let new = lacks.saturating_sub(old).max(0);
        self.rested = self.rested.saturating_add(new);
    }

    /// Judges the port at `time`. For each bucket, `lacks` is how many packets the port lost since
    /// the bucket's traffic last stopped. `mirror` is how many packets of all buckets the port lost
    /// before these stops. `offered` is how many packets were offered to the whole cluster.
    pub(super) fn judge(&mut self, time: u64, lacks: &[Span], mirror: i64, offered: i64) {
        let certain = sum(lacks.iter().map(|lacks| lacks.least.max(0)));
        self.in_all = self.in_all.max(mirror.saturating_add(certain));
        let new = self.old.iter_mut().zip(lacks).map(|(old, lacks)| {
            *old = (*old).min(lacks.most.max(0));
            lacks.least.saturating_sub(*old).max(0)
        });
        self.lacking = self.lacking.max(self.rested.saturating_add(sum(new)));
        let was_named = self.parts > 0;
        self.parts = self.recent(Sample {
            time,
            lacking: self.lacking,
            offered,
        });
        let is_due = self.parts == 0 || time >= self.noted.saturating_add(RECENT);
        if was_named && is_due {
            *self.old = std::array::from_fn(|bucket| lacks[bucket].most.max(0));
            self.rested = self.lacking;
        }
        if is_due {
            self.noted = time;
        }
    }

    /// Returns the lost packets in a million, for the last five minutes; 0 if the port is not
    /// lossy.
    fn recent(&mut self, now: Sample) -> u32 {
        let is_old = |sample: &Sample| sample.time.saturating_add(RECENT) < now.time;
        while self.samples.len() > 1 && self.samples.front().is_some_and(is_old) {
            self.samples.pop_front();
        }
        let (first, last) = match (self.samples.front(), self.samples.back()) {
            (Some(first), Some(last)) => (*first, *last),
            _ => (now, Sample { time: 0, ..now }),
        };
        if last.time.saturating_add(STEP) <= now.time {
            self.samples.push_back(now);
        }
        let lacks = now.lacking.saturating_sub(first.lacking);
        let offered = now.offered.saturating_sub(first.offered).max(1);
        let parts = lacks.saturating_mul(1_000_000) / offered;
        match lacks >= FEW && parts >= LOSSY {
            true => u32::try_from(parts.min(1_000_000)).unwrap_or(0),
            false => 0,
        }
    }

    /// Returns the number of certain losses that were added since the last call.
    pub(super) fn take_new(&mut self) -> i64 {
        let in_history = std::mem::replace(&mut self.in_history, self.in_all);
        self.in_all.saturating_sub(in_history)
    }
}
