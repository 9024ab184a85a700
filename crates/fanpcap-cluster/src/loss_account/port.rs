//! The packets that a node's port did not deliver in the last minutes, as far as this is certain.

use std::collections::VecDeque;

use fanpcap_buckets::layout::BUCKETS;

use super::span::{Span, sum};

/// Verdicts are of the last five minutes, in nanoseconds.
pub(super) const RECENT: u64 = 300_000_000_000;

/// The time between two samples, in nanoseconds.
const STEP: u64 = RECENT / 30;

/// Parts of a million: a port that lacks fewer packets is not named.
const LOSSY: i64 = 20;

/// Packets: a port that lacks fewer is not named.
const FEW: i64 = 3;

/// The packets that a life's port did not deliver.
///
/// While packets come, up to two seconds of a bucket's packets may be missing without proof. The
/// proof of an old loss comes when the traffic slackens, perhaps hours later. So when a port was
/// named, the packets that it may have lacked by then are noted as old.
#[derive(Clone, Debug)]
pub(super) struct Port {
    /// Packets of each bucket that it may have lacked already when this was noted, at most.
    old: Box<[i64; BUCKETS]>,
    /// Until when it was not named, or when `old` was noted.
    noted: u64,
    /// Packets lacking beyond `old`, in buckets that were at rest since, or before `old` was noted.
    rested: i64,
    /// Packets lacking, but for old ones, at least. It never falls.
    lacking: i64,
    /// Earlier values of `lacking`, the newest last.
    samples: VecDeque<Sample>,
    /// So many of a million packets were lacking in the last minutes; 0: the port is not named.
    pub(super) parts: u32,
    /// Packets lacking since the life's begin, old ones too, at least. It never falls.
    in_all: i64,
    /// Of `in_all`, the packets that are in the history.
    told: i64,
}

/// What was known at a time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    time: u64,
    lacking: i64,
    /// Packets offered to the cluster in all.
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
            told: 0,
        }
    }

    /// The life is no witness any more: what it lacks is not known until it is one again.
    pub(super) fn begin_anew(&mut self) {
        self.old.fill(0);
        self.rested = self.lacking;
        self.samples.clear();
        self.parts = 0;
    }

    /// A bucket is at rest, and `lacks` packets of it were lacking since it was so last.
    pub(super) fn rest(&mut self, bucket: usize, lacks: i64) {
        let old = std::mem::take(&mut self.old[bucket]);
        let new = lacks.saturating_sub(old).max(0);
        self.rested = self.rested.saturating_add(new);
    }

    /// Judges the port at `time`. `lacks` are the packets of each bucket that are lacking since it
    /// was at rest last; before that, it lacked `mirror` of all buckets. The cluster was offered
    /// `offered` packets in all.
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

    /// How many of a million packets were lacking in the last minutes; 0 if they are few.
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

    /// Packets lacking that were not in the history yet: they are now.
    pub(super) fn tell(&mut self) -> i64 {
        let told = std::mem::replace(&mut self.told, self.in_all);
        self.in_all.saturating_sub(told)
    }
}
