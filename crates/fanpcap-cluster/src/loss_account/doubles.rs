//! Packets that two nodes may have captured: those of unions, and those captured by topologies that
//! may have been replaced.

use std::ptr;

use super::counter_run::{CounterRun, CounterRunEnd, ReportsAround, captured_between};
use super::ledger::Ledger;
use crate::identity::Revision;

impl Ledger {
    /// Notes for the pairs of successive reports of a node which packets captured between the two
    /// may be captured twice: those of unions, and all packets if the two reports do not both have
    /// the newest topology that any node had by then.
    pub(super) fn compare(&mut self) {
        let skew = self.settings.skew;
        // All reports of the other nodes until this time have come.
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
                let is_stale = from != to || newest(stamp.saturating_add(skew)) > Some(to);
                self.note_pair(at, pair, is_stale);
                self.runs[at].compared = stamp;
            }
        }
    }

    /// Notes what a run captured between two reports in unions, or at all, as far as other nodes
    /// captured packets of the same bucket at that time.
    fn note_pair(&mut self, at: usize, pair: usize, is_stale: bool) {
        let skew = self.settings.skew;
        let run = &self.runs[at];
        let [from, to] = [pair, pair + 1].map(|at| &run.reports[at]);
        let own = |bucket: usize| {
            let shared = to.shared[bucket].saturating_sub(from.shared[bucket]);
            match is_stale {
                true => captured_between(from, to, bucket).max(shared),
                false => shared,
            }
        };
        let own: Vec<u64> = (0..from.seen.len()).map(own).collect();
        if own.iter().all(|own| *own == 0) {
            return;
        }
        let times = [from.summary.stamp, to.summary.stamp];
        let others = self.runs.iter().filter(|other| !ptr::eq(*other, run));
        let others: Vec<(&CounterRun, ReportsAround<'_>)> = others
            .map(|other| (other, self.around_both(other, times)))
            .collect();
        // If a run was given up, only the sum of its captured packets is known.
        let is_known = self.over.saturating_add(skew.saturating_mul(2)) <= times[0];
        let captured = |bucket: usize| {
            if !is_known {
                return u64::MAX;
            }
            let of =
                |(run, around): &(&CounterRun, ReportsAround<'_>)| captured(run, around, bucket);
            others.iter().map(of).fold(0, u64::saturating_add)
        };
        let doubles = own.into_iter().enumerate().map(|(bucket, own)| match own {
            0 => 0,
            own => own.min(captured(bucket)),
        });
        let doubles: Vec<u64> = doubles.collect();
        for (sum, doubles) in self.runs[at].may_double.iter_mut().zip(doubles) {
            *sum = sum.saturating_add(doubles);
        }
    }

    /// The last report of another run before, and the first one after, all packets that a run
    /// counted between two stamps.
    fn around_both<'a>(&self, other: &'a CounterRun, [from, to]: [u64; 2]) -> ReportsAround<'a> {
        let skew = self.settings.skew;
        ReportsAround {
            before: other.around(from.saturating_sub(skew), skew).before,
            after: other.around(to.saturating_add(skew), skew).after,
        }
    }

    /// Whether all pairs of an ended run's reports have been compared.
    pub(super) fn is_compared(&self, end: &CounterRunEnd) -> bool {
        let until = end.at.saturating_add(self.settings.skew.saturating_mul(2));
        let mut live = self.runs.iter().filter(|run| run.is_live());
        live.all(|run| run.compared >= until)
    }
}

/// Upper limit of the packets of a bucket that a run captured between two of its reports. If the
/// later report has not come, the run may have captured any number of packets. What an ended run
/// captured after its last report is counted as unreported.
fn captured(run: &CounterRun, around: &ReportsAround<'_>, bucket: usize) -> u64 {
    if around.after.is_none() && run.is_live() {
        return u64::MAX;
    }
    let after = around.after.unwrap_or(run.last());
    let before = around.before.map_or(0, |report| report.captured[bucket]);
    after.captured[bucket].saturating_sub(before)
}
