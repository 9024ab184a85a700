//! Finds packets that two nodes may have captured, because one followed a replaced topology.

use std::ptr;

use super::counter_run::{CounterRun, CounterRunEnd, ReportsAround, alone};
use super::ledger::Ledger;
use crate::identity::Revision;

impl Ledger {
    /// Finds successive reports of a node between which it may have followed an older topology than
    /// another node, so that packets between these reports may have been captured twice.
    pub(super) fn compare(&mut self) {
        let skew = self.settings.skew;
        // Until this time, all nodes' reports have come.
        let until = self.time.saturating_sub(skew);
        let follows = |run: &CounterRun| -> Vec<(u64, Revision)> {
            let reports = run.reports.iter().map(|report| report.summary);
            reports
                .map(|summary| (summary.stamp, summary.revision))
                .collect()
        };
        let all: Vec<Vec<(u64, Revision)>> = self.runs.iter().map(follows).collect();
        let newest = |by: u64| {
            let of = |run: &Vec<(u64, Revision)>| {
                let after = run.iter().find(|(stamp, _)| *stamp >= by);
                after.or(run.last()).map(|(_, revision)| *revision)
            };
            all.iter().filter_map(of).max()
        };
        for (at, own) in all.iter().enumerate() {
            for (pair, two) in own.windows(2).enumerate() {
                let [(_, from), (stamp, to)] = [two[0], two[1]];
                if stamp <= self.runs[at].compared || stamp > until {
                    continue;
                }
                if from != to || newest(stamp.saturating_add(skew)) > Some(to) {
                    self.note_stale(at, pair);
                }
                self.runs[at].compared = stamp;
            }
        }
    }

    /// Counts what a run captured outside unions between two reports as stale: for each bucket, at
    /// most as many packets as other nodes captured in that time.
    fn note_stale(&mut self, at: usize, pair: usize) {
        let skew = self.settings.skew;
        let run = &self.runs[at];
        let [from, to] = [pair, pair + 1].map(|at| &run.reports[at]);
        let times = [from.summary.stamp, to.summary.stamp];
        let others = self.runs.iter().filter(|other| !ptr::eq(*other, run));
        let others: Vec<(&CounterRun, ReportsAround<'_>)> = others
            .map(|other| (other, self.around_both(other, times)))
            .collect();
        // What given-up runs captured in this time is unknown: only their sums are left.
        let is_known = self.over.saturating_add(skew.saturating_mul(2)) <= times[0];
        let captured = |bucket: usize| {
            if !is_known {
                return u64::MAX;
            }
            let of =
                |(run, around): &(&CounterRun, ReportsAround<'_>)| captured(run, around, bucket);
            others.iter().map(of).fold(0, u64::saturating_add)
        };
        let stale = |bucket: usize| match alone(from, to, bucket) {
            0 => 0,
            alone => alone.min(captured(bucket)),
        };
        let stale: Vec<u64> = (0..from.seen.len()).map(stale).collect();
        for (sum, stale) in self.runs[at].stale.iter_mut().zip(stale) {
            *sum = sum.saturating_add(stale);
        }
    }

    /// The reports of another run around the time between two stamps: the last one that is
    /// certainly before this time, and the first one that is certainly after it.
    fn around_both<'a>(&self, other: &'a CounterRun, [from, to]: [u64; 2]) -> ReportsAround<'a> {
        let skew = self.settings.skew;
        ReportsAround {
            before: other.around(from.saturating_sub(skew), skew).before,
            after: other.around(to.saturating_add(skew), skew).after,
        }
    }

    /// Whether all reports of an ended run have been compared with other runs' reports.
    pub(super) fn is_compared(&self, end: &CounterRunEnd) -> bool {
        let until = end.at.saturating_add(self.settings.skew.saturating_mul(2));
        let mut live = self.runs.iter().filter(|run| run.is_live());
        live.all(|run| run.compared >= until)
    }
}

/// Upper limit of the packets of a bucket that a run captured between two of its reports. If the
/// later report has not come, the run may have captured any number of packets. An ended run
/// captured no packets after its last report, unless it owned the bucket.
fn captured(run: &CounterRun, around: &ReportsAround<'_>, bucket: usize) -> u64 {
    let is_open = run.end.as_ref().is_none_or(|end| end.owned[bucket]);
    if around.after.is_none() && is_open {
        return u64::MAX;
    }
    let after = around.after.unwrap_or(run.last());
    let before = around.before.map_or(0, |report| report.captured[bucket]);
    after.captured[bucket].saturating_sub(before)
}
