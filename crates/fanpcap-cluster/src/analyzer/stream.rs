//! The batches of one session: which came, which are repeats, and how many records are missing.

use fanpcap_buckets::layout::BUCKETS;

use super::Refusal;
use crate::loss_account::Counts;
use crate::record::Batch;

/// A batch may come this many batches late. An older batch may be a repeat, so it is refused.
const WINDOW: u64 = (WORDS * 64) as u64;

/// The number of words in the window. Each batch has one bit.
const WORDS: usize = 256;

/// If the first batch that comes of a session has at least this number, the session began while the
/// node could not reach the analyzer.
const FIRST: u64 = 1024;

#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// The number of the newest batch, plus 1.
    next: u64,
    /// A bit for each batch of the window: whether it came.
    came: Vec<u64>,
    /// The range of record numbers that must come: the first number, and the number after the last.
    records: (u64, u64),
    received: u64,
    /// How many records came, by bucket.
    pub(super) captured: Box<Counts>,
    /// The lowest stamp of the session's records. Batches without records do not count.
    pub(super) began: u64,
    /// When the newest batch came. `ahead` is that batch's stamp minus the time of its arrival.
    pub(super) heard: u64,
    pub(super) ahead: i64,
    /// When this many time slots have been delivered, so have all records of the session that came.
    pub(super) until: u64,
    /// If the newest batch is empty, the time in which the session had no packets to send.
    pub(super) quiet: Option<IdleTime>,
}

/// A time in which a session had no packets to send, in nanoseconds since 1970 by the node's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleTime {
    /// When the idle time began. All records that have come were captured before.
    pub since: u64,
    /// Records captured before this time have come or are lost; 0 after only one empty batch.
    pub until: u64,
    /// The newest empty batch's stamp. Records with lower stamps come before the next empty batch.
    newest: u64,
}

impl Stream {
    /// A session of which `batch` is the first batch that came. If the analyzer was running when
    /// the session began (`from_begin`), the batches before `batch` count as lost until they come.
    pub(super) fn new(batch: &Batch<'_>, from_begin: bool) -> Self {
        let origin = &batch.origin;
        let first = if from_begin && origin.sequence < FIRST {
            0
        } else {
            origin.first
        };
        Self {
            next: origin.sequence,
            came: vec![0; WORDS],
            records: (first, first),
            received: 0,
            captured: Box::new([0; BUCKETS]),
            began: u64::MAX,
            heard: 0,
            ahead: 0,
            until: 0,
            quiet: None,
        }
    }

    /// Notes that a batch came at `now`, unless it is a repeat or too old.
    pub(super) fn note(&mut self, batch: &Batch<'_>, now: u64) -> Result<(), Refusal> {
        let sequence = batch.origin.sequence;
        if sequence.saturating_add(WINDOW) < self.next {
            return Err(Refusal::Old);
        }
        self.reach(sequence);
        let (word, bit) = Self::at(sequence);
        if self.came[word] & bit != 0 {
            return Err(Refusal::Again);
        }
        self.came[word] |= bit;
        let end = batch.origin.first.saturating_add(u64::from(batch.len()));
        self.records.0 = self.records.0.min(batch.origin.first);
        self.records.1 = self.records.1.max(end);
        self.received += u64::from(batch.len());
        if !batch.is_empty() {
            self.began = self.began.min(batch.stamp());
        }
        self.heard = now;
        self.quiet = batch.is_empty().then(|| IdleTime {
            since: self.quiet.map_or(batch.stamp(), |quiet| quiet.since),
            until: self.quiet.map_or(0, |quiet| quiet.newest),
            newest: batch.stamp(),
        });
        Ok(())
    }

    /// Adds the counts of another session of the same node, because that session will be forgotten.
    pub(super) fn inherit(&mut self, other: &Self) {
        for (mine, others) in self.captured.iter_mut().zip(other.captured.iter()) {
            *mine += others;
        }
        self.began = self.began.min(other.began);
    }

    /// Moves the window so that it includes the batch `sequence`.
    fn reach(&mut self, sequence: u64) {
        if sequence >= self.next.saturating_add(WINDOW) {
            self.came.fill(0);
            self.next = sequence;
        }
        while self.next <= sequence {
            let (word, bit) = Self::at(self.next);
            self.came[word] &= !bit;
            self.next += 1;
        }
    }

    fn at(sequence: u64) -> (usize, u64) {
        let word = usize::try_from(sequence / 64 % WORDS as u64).unwrap_or(0);
        (word, 1 << (sequence % 64))
    }

    /// How many records were sent and did not come.
    pub(super) fn missing(&self) -> u64 {
        (self.records.1 - self.records.0).saturating_sub(self.received)
    }
}
