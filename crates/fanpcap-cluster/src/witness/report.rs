//! What a node counted, whole and in chunks.

use fanpcap_buckets::layout::BUCKETS;

use crate::identity::{NodeId, Revision};

/// A number of packets for each bucket.
pub type Counts = [u64; BUCKETS];

/// The newest beacon that a node saw in the mirrored stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Beacon {
    /// The beacon's number; 0 before the first.
    pub sequence: u64,
    /// When the node saw it, in nanoseconds since 1970.
    pub seen: u64,
}

/// The fields of a report besides the counts by bucket. All counts grow from 0 since `since`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Which node.
    pub node: NodeId,
    /// Drawn when the node's machine booted.
    pub boot: u64,
    /// When the counters were 0, in nanoseconds since 1970. Counters that outlive the node's agent
    /// keep it; others have another one.
    pub since: u64,
    /// When the counters were read, in nanoseconds since 1970.
    pub stamp: u64,
    /// The topology that the node follows.
    pub revision: Revision,
    /// Packets that were the node's and found its ring full.
    pub ring: u64,
    /// The newest beacon.
    pub beacon: Beacon,
}

/// What a node counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Who, when, and what is not counted by bucket.
    pub summary: Summary,
    /// Packets that reached the node's port.
    pub seen: Box<Counts>,
    /// Packets that the node captured: what of them was its own and did not find the ring full.
    pub captured: Box<Counts>,
    /// Packets that were the node's and another's: they came while a union shared their bucket.
    pub shared: Box<Counts>,
}

/// A part of a report: the counts of some buckets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// The report's.
    pub summary: Summary,
    /// The first bucket.
    pub first: u16,
    /// Packets seen, captured and shared, from that bucket on.
    pub counts: Vec<[u64; 3]>,
}

/// No count is greater: a bucket that gets ten million packets a second has as many after three
/// years. The sum of all buckets fits into 63 bits.
pub(super) const MOST: u64 = 1 << 50;

impl Report {
    /// Whether its counts are possible, as far as the report itself shows: anybody may have sent
    /// it.
    pub(super) fn is_possible(&self) -> bool {
        let Summary { since, stamp, .. } = self.summary;
        let parts = self.captured.iter().zip(self.shared.iter());
        let mut counts = self.seen.iter().zip(parts);
        since <= stamp
            && self.summary.ring <= MOST
            && self.summary.beacon.sequence <= MOST
            && counts
                .all(|(seen, (captured, shared))| captured.max(shared) <= seen && *seen <= MOST)
    }

    /// Whether a count is less than in the report before.
    pub(super) fn goes_back(&self, before: &Self) -> bool {
        let fell = |new: &Counts, old: &Counts| new.iter().zip(old).any(|(new, old)| new < old);
        fell(&self.seen, &before.seen)
            || fell(&self.captured, &before.captured)
            || fell(&self.shared, &before.shared)
            || self.summary.ring < before.summary.ring
    }

    /// Packets of a bucket that the node captured outside unions.
    pub(super) fn alone(&self, bucket: usize) -> u64 {
        self.captured[bucket].saturating_sub(self.shared[bucket])
    }

    /// The report in chunks of `buckets` buckets or fewer, at least one.
    pub fn chunks(&self, buckets: usize) -> impl Iterator<Item = Chunk> + '_ {
        let step = buckets.clamp(1, BUCKETS);
        (0..BUCKETS).step_by(step).map(move |first| {
            let end = (first + step).min(BUCKETS);
            let of = |bucket: usize| {
                [&self.seen, &self.captured, &self.shared].map(|counts| counts[bucket])
            };
            Chunk {
                summary: self.summary,
                first: u16::try_from(first).unwrap_or(u16::MAX),
                counts: (first..end).map(of).collect(),
            }
        })
    }
}

/// Chunks overtake each other by less, in nanoseconds. A report that is older by more is a newer
/// one: the node's clock was set back.
const OVERTAKE: u64 = 5_000_000_000;

/// Puts the chunks of one node's reports together.
#[derive(Debug, Default)]
pub struct Assembly {
    report: Option<Report>,
    missing: usize,
    /// Which buckets are there.
    there: Vec<bool>,
}

impl Assembly {
    /// Takes a chunk. Returns the report that it completes. Chunks of an older report than the one
    /// at hand are dropped, and so is a report of which a newer one begins.
    pub fn take(&mut self, chunk: &Chunk) -> Option<Report> {
        let at = usize::from(chunk.first);
        let end = at + chunk.counts.len();
        if end > BUCKETS || !self.begin(&chunk.summary) {
            return None;
        }
        let report = self.report.as_mut()?;
        for (bucket, &[seen, captured, shared]) in (at..end).zip(&chunk.counts) {
            if !std::mem::replace(&mut self.there[bucket], true) {
                self.missing -= 1;
            }
            report.seen[bucket] = seen;
            report.captured[bucket] = captured;
            report.shared[bucket] = shared;
        }
        if self.missing > 0 {
            return None;
        }
        self.report.take()
    }

    /// Whether chunks of this report are wanted.
    fn begin(&mut self, summary: &Summary) -> bool {
        match &self.report {
            Some(report) if report.summary == *summary => return true,
            Some(report) if is_older(summary, &report.summary) => return false,
            _ => {}
        }
        self.report = Some(Report {
            summary: *summary,
            seen: Box::new([0; BUCKETS]),
            captured: Box::new([0; BUCKETS]),
            shared: Box::new([0; BUCKETS]),
        });
        self.missing = BUCKETS;
        self.there = vec![false; BUCKETS];
        true
    }
}

/// Whether a report was made before another one of the node.
fn is_older(one: &Summary, other: &Summary) -> bool {
    let behind = other.stamp.saturating_sub(one.stamp);
    0 < behind && behind < OVERTAKE
}
