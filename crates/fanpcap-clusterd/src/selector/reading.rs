//! Reads a selection's counters.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_select::layout::{control, counts};
use fanpcap_select::native::Causes;

use super::{Selector, is_own, is_shared};

/// What a node has counted since its selection was loaded. Only `captured` may be less than at an
/// earlier reading.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    /// For each bucket, the packets that the node received.
    pub seen: Box<[u64; BUCKETS]>,
    /// For each bucket, the captured packets: passed on, filtered, or written into the pool. The
    /// counters are read one by one. So while packets come, these numbers may be too low, and may
    /// fall.
    pub captured: Box<[u64; BUCKETS]>,
    /// This node's packets of all buckets, whether captured or lost.
    pub own: u64,
    /// Counters of the coordinator's frames and, over all buckets, of lost and filtered packets.
    pub causes: Causes,
}

impl Selector {
    /// Reads all counters.
    pub fn counts(&self) -> Counts {
        let tables = [self.counted(0), self.counted(1)];
        // A packet is counted for its bucket first, and then as lost or filtered. So the counts of
        // lost packets are read last. Captured packets are a bucket's packets minus its lost
        // packets, so their number may be too low, but never too high.
        let lost = self.counters(counts::lost(self.lanes));
        let mut seen = Box::new([0; BUCKETS]);
        let mut captured = Box::new([0; BUCKETS]);
        let [mut own, mut shared] = [0_u64; 2];
        for bucket in 0..BUCKETS {
            let [first, second] = tables.each_ref().map(|counted| counted[bucket]);
            seen[bucket] = first.wrapping_add(second);
            let under = |sums: usize, is_counted: fn(u8) -> bool| {
                let tables = [(0, first), (BUCKETS, second)].into_iter();
                let counted = tables.filter(|(table, _)| is_counted(self.claim(table + bucket)));
                let sum = self.load_word(sums + 8 * bucket);
                counted.fold(sum, |sum, (_, counted)| sum.wrapping_add(counted))
            };
            let all = under(control::SUMS, is_own);
            own = own.wrapping_add(all);
            captured[bucket] = all.saturating_sub(lost[bucket]);
            shared = shared.wrapping_add(under(control::SHARED, is_shared));
        }
        Counts {
            seen,
            captured,
            own,
            causes: Causes {
                beacons: self.cause(counts::BEACONS),
                updates: self.cause(counts::UPDATES),
                forged: self.cause(counts::FORGED),
                others: self.cause(counts::OTHERS),
                lost: self.cause(counts::LOST),
                shared,
                filtered: self.cause(counts::FILTERED),
            },
        }
    }

    /// For each bucket, the packets of all receive queues that came while this table was in use.
    pub(super) fn counted(&self, table: usize) -> Box<[u64; BUCKETS]> {
        let mut sums = Box::new([0_u64; BUCKETS]);
        for lane in 0..self.lanes.counters() {
            let long = counts::long(self.lanes) + lane * counts::LANE + table * counts::TABLE;
            let long = self.counts.words(long, BUCKETS).unwrap_or_default();
            let short = lane * counts::SHORT_LANE + table * counts::SHORT_TABLE;
            let short = (lane < self.lanes.own()).then(|| self.counts.view(short, BUCKETS));
            let short: &[AtomicU16] = short.flatten().unwrap_or_default();
            for (bucket, (sum, long)) in sums.iter_mut().zip(long).enumerate() {
                let counted = match short.get(bucket) {
                    Some(short) => turned(long, short),
                    None => long.load(Ordering::Acquire),
                };
                *sum = sum.wrapping_add(counted);
            }
        }
        sums
    }

    /// The counters of all buckets. `at` is the offset of the first counter.
    fn counters(&self, at: usize) -> Box<[u64; BUCKETS]> {
        let mut counters = Box::new([0; BUCKETS]);
        let words = self.counts.words(at, BUCKETS).unwrap_or_default();
        for (counter, word) in counters.iter_mut().zip(words) {
            *counter = word.load(Ordering::Acquire);
        }
        counters
    }

    pub(super) fn cause(&self, cause: usize) -> u64 {
        let lanes = 0..self.lanes.counters();
        let at = lanes.map(|lane| counts::causes(self.lanes) + lane * counts::CAUSES + cause);
        let words = at.filter_map(|at| self.counts.words(at, 1)?.first());
        words.fold(0, |sum: u64, word| {
            sum.wrapping_add(word.load(Ordering::Acquire))
        })
    }
}

/// The value of one counter of a lane: see [`counts`].
fn turned(half_turns: &AtomicU64, short: &AtomicU16) -> u64 {
    let mut before = half_turns.load(Ordering::Acquire);
    loop {
        let short = u64::from(short.load(Ordering::Acquire));
        let after = half_turns.load(Ordering::Acquire);
        if before == after {
            // The BPF program writes `short` first, so `half_turns` may lack the newest half turn.
            let pending = (before ^ (short >> counts::HALF)) & 1;
            let low = short & ((1 << counts::HALF) - 1);
            return (before.wrapping_add(pending) << counts::HALF).wrapping_add(low);
        }
        before = after;
    }
}
