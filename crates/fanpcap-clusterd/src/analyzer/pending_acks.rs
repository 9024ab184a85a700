//! Acknowledgements for nodes: these batches are written, and need not be sent again.
//!
//! A received batch waits in memory for a while. It is acknowledged when all of its records are in
//! the files or refused. So a killed analyzer loses nothing: the nodes send the batch again, to its
//! successor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Batches that are not acknowledged yet.
#[derive(Debug, Default)]
pub(super) struct PendingAcks {
    /// The key is the analyzer's output count at which a batch is done. The value has the place
    /// where its connection publishes the first missing batch, and the number of the batch after
    /// this one.
    waiting: BTreeMap<u64, Vec<(Arc<AtomicU64>, u64)>>,
}

impl PendingAcks {
    /// Acknowledges a batch, and the batches before it, once this count has been reached.
    pub(super) fn owe(&mut self, due: u64, lacks: &Arc<AtomicU64>, sequence: u64) {
        let receipt = (Arc::clone(lacks), sequence.saturating_add(1));
        self.waiting.entry(due).or_default().push(receipt);
    }

    /// So much has been given out, and written.
    pub(super) fn settle(&mut self, given: u64) {
        let left = self.waiting.split_off(&given.saturating_add(1));
        let done = std::mem::replace(&mut self.waiting, left);
        for (lacks, next) in done.into_values().flatten() {
            lacks.fetch_max(next, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_acknowledged_when_all_of_it_is_given_out() {
        let (one, other) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut pending_acks = PendingAcks::default();
        pending_acks.owe(5, &one, 0);
        pending_acks.owe(7, &one, 1);
        pending_acks.owe(6, &other, 9);
        let told = |pending_acks: &mut PendingAcks, given| {
            pending_acks.settle(given);
            [&one, &other].map(|lacks| lacks.load(Ordering::Acquire))
        };
        assert_eq!(told(&mut pending_acks, 4), [0, 0]);
        assert_eq!(told(&mut pending_acks, 6), [1, 10]);
        assert_eq!(told(&mut pending_acks, 7), [2, 10]);
        assert!(pending_acks.waiting.is_empty());
    }
}
