//! Finds packets that may be doubles: if two nodes captured packets of one bucket at about the same
//! time, these may be the same packets.

use fanpcap_buckets::layout::BUCKETS;

use super::counter_run::{CounterRun, CounterRunEnd, ReportsAround};
use super::ledger::Ledger;

impl Ledger {
    /// For each two successive reports of a node, notes how many of the packets that the node
    /// captured between these reports may be doubles.
    pub(super) fn compare(&mut self) {
        // Until this time, all nodes' reports have come.
        let until = self.time.saturating_sub(self.settings.skew);
        for at in 0..self.runs.len() {
            for pair in 1..self.runs[at].reports.len() {
                let stamp = self.runs[at].reports[pair].summary.stamp;
                if stamp > self.runs[at].compared && stamp <= until {
                    let doubles = self.doubles(&self.runs[at], pair);
                    let run = &mut self.runs[at];
                    for (bucket, [reported, unreported]) in doubles.into_iter().enumerate() {
                        let sums = [&mut run.may_double, &mut run.may_double_dead];
                        for (sum, doubles) in sums.into_iter().zip([reported, unreported]) {
                            sum[bucket] = sum[bucket].saturating_add(doubles);
                        }
                    }
                    run.compared = stamp;
                }
            }
        }
    }

    /// For each bucket, two upper limits of the doubles among the packets that a run captured
    /// between two successive reports. First: packets in reports of nodes with lower numbers, or
    /// of all nodes if the node counted as dead between the two. Second: packets that dead nodes
    /// may have captured after their last reports. If two nodes report a packet, only the node with
    /// the higher number counts the double.
    fn doubles(&self, run: &CounterRun, pair: usize) -> Vec<[u64; 2]> {
        let [from, to] = [pair - 1, pair].map(|at| &run.reports[at]);
        let others = self.others(run, [from, to].map(|report| report.summary.stamp));
        let doubles = |bucket: usize| {
            let own = to.captured[bucket].saturating_sub(from.captured[bucket]);
            if own == 0 {
                return [0; 2];
            }
            let (others, is_open) = others(bucket);
            let reported = own.min(others);
            [reported, if is_open { own - reported } else { 0 }]
        };
        (0..BUCKETS).map(doubles).collect()
    }

    /// For each bucket, an upper limit of the packets that nodes with lower numbers captured
    /// between the stamps of two reports of `run`; all nodes count if the node of `run` counted as
    /// dead between the two. Also whether a dead node may have captured packets in this time that
    /// no report has.
    fn others(&self, run: &CounterRun, times: [u64; 2]) -> impl Fn(usize) -> (u64, bool) {
        let node = run.node;
        // Other nodes' packets were not compared with those of a node that counted as dead.
        let with_all = run.silent == Some(times[0]);
        let others = self.runs.iter().filter(move |other| other.node != node);
        let others: Vec<_> = others
            .map(|other| (other, self.around_both(other, times)))
            .collect();
        let skews = self.settings.skew.saturating_mul(2);
        // What given-up runs captured in this time is unknown: only their sums are left.
        let is_known = self.over.saturating_add(skews) <= times[0];
        move |bucket| {
            let (mut sum, mut is_open) = (if is_known { 0 } else { u64::MAX }, false);
            for (run, around) in &others {
                match &run.end {
                    _ if around.after.is_some() => {}
                    None => sum = u64::MAX,
                    Some(end) => {
                        is_open |= end.owned[bucket] && times[0] <= end.at.saturating_add(skews);
                    }
                }
                if with_all || run.node < node {
                    let after = around.after.unwrap_or(run.last());
                    let before = around.before.map_or(0, |report| report.captured[bucket]);
                    sum = sum.saturating_add(after.captured[bucket].saturating_sub(before));
                }
            }
            (sum, is_open)
        }
    }

    /// The last report of another run that certainly precedes the time between two stamps, and the
    /// first report that certainly follows this time.
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
