//! Acknowledgements to nodes. An acknowledged batch is written, so its node need not send it again.
//!
//! A received batch waits in memory for a while. It is acknowledged when each of its records has
//! been written or refused. So no packet is lost if the analyzer is killed: the nodes send
//! unacknowledged batches to the next analyzer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Batches that have not been acknowledged.
#[derive(Debug, Default)]
pub(super) struct PendingAcks {
    /// Acknowledgements, by the output count of the analyzer at which they are due. Each
    /// acknowledgement has a connection's `lacks` (the first batch without acknowledgement), and
    /// the value that `lacks` gets then.
    waiting: BTreeMap<u64, Vec<(Arc<AtomicU64>, u64)>>,
}

impl PendingAcks {
    /// Acknowledges the connection's batches up to `sequence` when the output count reaches `due`.
    pub(super) fn add(&mut self, due: u64, lacks: &Arc<AtomicU64>, sequence: u64) {
        let ack = (Arc::clone(lacks), sequence.saturating_add(1));
        self.waiting.entry(due).or_default().push(ack);
    }

    /// Acknowledges all batches that are due at the output count `given`, or earlier.
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
        pending_acks.add(5, &one, 0);
        pending_acks.add(7, &one, 1);
        pending_acks.add(6, &other, 9);
        let acknowledged = |pending_acks: &mut PendingAcks, given| {
            pending_acks.settle(given);
            [&one, &other].map(|lacks| lacks.load(Ordering::Acquire))
        };
        assert_eq!(acknowledged(&mut pending_acks, 4), [0, 0]);
        assert_eq!(acknowledged(&mut pending_acks, 6), [1, 10]);
        assert_eq!(acknowledged(&mut pending_acks, 7), [2, 10]);
        assert!(pending_acks.waiting.is_empty());
    }
}
