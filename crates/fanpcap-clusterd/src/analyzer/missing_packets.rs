//! Counts the packets that a node captured and that never reached the analyzer.
//!
//! When an agent is killed, packets that it had read but not sent are lost. No gap in the records'
//! numbers shows this loss. So whenever traffic stops, the analyzer compares the packets that the
//! node reports as captured with the packets that came.

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_cluster::analyzer::IdleTime;
use fanpcap_cluster::loss_account::Counts;

/// Counts the packets that never came, of all that a node captured since its counters were 0.
#[derive(Debug)]
pub(super) struct MissingPackets {
    /// The newest report's captured packets, and the first stamp of a report with these numbers.
    captured: Box<Counts>,
    first: u64,
    /// For each bucket, how many packets the analyzer lacked when traffic first stopped. A previous
    /// analyzer may have received them. All are 0 if the counters began after the account.
    before: Option<Box<Counts>>,
    /// For each bucket, how many captured packets were lost before traffic last stopped.
    lost: Box<Counts>,
    /// How many record numbers were missing when traffic first stopped.
    early: u64,
    /// How many record numbers were missing when traffic last stopped.
    gaps: u64,
}

impl MissingPackets {
    /// `is_new` says whether the node's counters began after the account. `gaps` is how many record
    /// numbers were missing before the node's counters were reset.
    pub(super) fn new(is_new: bool, gaps: u64) -> Self {
        let zeros = || Box::new([0; BUCKETS]);
        Self {
            captured: zeros(),
            first: 0,
            before: is_new.then(zeros),
            lost: zeros(),
            early: 0,
            gaps,
        }
    }

    /// Takes the captured packets of a report that was made at `stamp` by the node's clock. `came`
    /// counts the packets that came. `gaps` is how many of the node's record numbers are missing.
    pub(super) fn take(
        &mut self,
        (stamp, captured): (u64, &Counts),
        quiet: Option<IdleTime>,
        came: &Counts,
        gaps: u64,
    ) {
        if self.first == 0 || self.captured[..] != captured[..] {
            self.captured.copy_from_slice(captured);
            self.first = stamp;
            return;
        }
        // Compares the report with the packets that came only under two conditions. All packets
        // that the report counts have come or are lost (`until`). No packet newer than the report
        // has come (`since`).
        let is_drained = |quiet: &IdleTime| quiet.until > self.first && quiet.since <= stamp;
        if quiet.as_ref().is_none_or(|quiet| !is_drained(quiet)) {
            return;
        }
        let lacks = |bucket: usize| captured[bucket].saturating_sub(came[bucket]);
        let before = self.before.get_or_insert_with(|| {
            self.early = gaps.saturating_sub(self.gaps);
            Box::new(std::array::from_fn(lacks))
        });
        for (bucket, lost) in self.lost.iter_mut().enumerate() {
            *lost = lacks(bucket).saturating_sub(before[bucket]);
        }
        self.gaps = gaps;
    }

    /// For each bucket, how many captured packets were lost before traffic last stopped.
    pub(super) fn of_buckets(&self) -> &Counts {
        &self.lost
    }

    /// How many captured packets were lost in all buckets before traffic last stopped.
    pub(super) fn at_rest(&self) -> u64 {
        self.lost
            .iter()
            .fold(0, |sum, lost| sum.saturating_add(*lost))
    }

    /// The packets that are known to be lost. `gaps` is how many record numbers are missing.
    pub(super) fn by_now(&self, gaps: u64) -> u64 {
        let newer = gaps.saturating_sub(self.gaps);
        self.at_rest()
            .saturating_add(self.early)
            .saturating_add(newer)
    }
}
