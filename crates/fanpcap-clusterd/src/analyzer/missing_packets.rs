//! Counts a node's captured packets that never came.
//!
//! When an agent is killed, packets that it had read but not sent are lost, and no gap in the
//! records' numbers shows it. So whenever traffic stops, the packets that the node reports as
//! captured are compared with those that came.

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_cluster::analyzer::IdleTime;
use fanpcap_cluster::loss_account::Counts;

/// One node's packets that never came, since its counters were 0.
#[derive(Debug)]
pub(super) struct MissingPackets {
    /// The captured packets according to the newest report, and the stamp of the first report with
    /// these counts.
    captured: Box<Counts>,
    first: u64,
    /// For counters that are older than the accounts: the packets that had not come when traffic
    /// first stopped. The previous analyzer may have had them.
    before: Option<Box<Counts>>,
    /// Packets of each bucket that never came, when traffic last stopped.
    lost: Box<Counts>,
    /// Records that were missing, by their numbers, before traffic first stopped.
    early: u64,
    /// All records that were missing, by their numbers, when traffic last stopped.
    gaps: u64,
}

impl MissingPackets {
    /// For counters that began after the accounts (`is_new`), or before them.
    pub(super) fn new(is_new: bool) -> Self {
        let zeros = || Box::new([0; BUCKETS]);
        Self {
            captured: zeros(),
            first: 0,
            before: is_new.then(zeros),
            lost: zeros(),
            early: 0,
            gaps: 0,
        }
    }

    /// The same, for a node that already has `gaps` missing records from earlier counters.
    pub(super) fn after(self, gaps: u64) -> Self {
        Self { gaps, ..self }
    }

    /// Takes the captured packets of a report with `stamp`, by the node's clock. `came` has the
    /// packets that came by now, and `gaps` the records of the node that are missing by their
    /// numbers.
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
        // All that was captured by the first of these reports has come, and nothing that was
        // captured after the second.
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

    /// Packets of each bucket that never came, when traffic last stopped.
    pub(super) fn of_buckets(&self) -> &Counts {
        &self.lost
    }

    /// The same for all buckets together.
    pub(super) fn at_rest(&self) -> u64 {
        self.lost
            .iter()
            .fold(0, |sum, lost| sum.saturating_add(*lost))
    }

    /// The packets that never came, as far as this is known by now: `gaps` records are missing by
    /// their numbers.
    pub(super) fn by_now(&self, gaps: u64) -> u64 {
        let newer = gaps.saturating_sub(self.gaps);
        self.at_rest()
            .saturating_add(self.early)
            .saturating_add(newer)
    }
}
