//! Finds packets that two nodes may have captured: packets of a bucket of which two nodes captured
//! packets at about the same time.

use super::counter_run::{CounterRun, CounterRunEnd, ReportsAround};
use super::ledger::Ledger;
use super::report::Counts;
use crate::identity::NodeId;

impl Ledger {
    /// Notes for each pair of successive reports of a node how many of the packets that the node
    /// captured between these reports another node may have captured too.
    pub(super) fn compare(&mut self) {
        // All reports of the other nodes until this time have come.
        let until = self.time.saturating_sub(self.settings.skew);
        for at in 0..self.runs.len() {
            for pair in 1..self.runs[at].reports.len() {
                let stamp = self.runs[at].reports[pair].summary.stamp;
                if stamp > self.runs[at].compared && stamp <= until {
                    let doubles = self.doubles(&self.runs[at], pair);
                    let run = &mut self.runs[at];
                    for (sum, doubles) in run.may_double.iter_mut().zip(doubles.iter()) {
                        *sum = sum.saturating_add(*doubles);
                    }
                    run.compared = stamp;
                }
            }
        }
    }

    /// Upper limit of the packets that a run captured between a report and the one before, and that
    /// nodes with lower numbers captured too. So a packet with two copies counts once.
    fn doubles(&self, run: &CounterRun, pair: usize) -> Box<Counts> {
        let [from, to] = [pair - 1, pair].map(|at| &run.reports[at]);
        let others = self.others(run.node, [from, to].map(|report| report.summary.stamp));
        let doubles = |bucket: usize| {
            let own = to.captured[bucket].saturating_sub(from.captured[bucket]);
            match own {
                0 => 0,
                own => others(bucket).map_or(own, |others| own.min(others)),
            }
        };
        Box::new(std::array::from_fn(doubles))
    }

    /// How many packets of a bucket nodes with lower numbers than `node` captured at the time when
    /// `node` counted packets between two stamps. `None` if the number is unknown, or if a dead node
    /// may have captured packets that no report has.
    fn others(&self, node: NodeId, times: [u64; 2]) -> impl Fn(usize) -> Option<u64> {
        let others = self.runs.iter().filter(move |other| other.node != node);
        let others: Vec<_> = others
            .map(|other| (other, self.around_both(other, times)))
            .collect();
        let skews = self.settings.skew.saturating_mul(2);
        // If a run was given up, only the sum of its captured packets is known.
        let is_known = self.over.saturating_add(skews) <= times[0];
        move |bucket| {
            let mut sum: u64 = 0;
            for (run, around) in &others {
                let is_open = match &run.end {
                    None => true,
                    Some(end) => end.owned[bucket] && times[0] <= end.at.saturating_add(skews),
                };
                if around.after.is_none() && is_open {
                    return None;
                }
                if run.node < node {
                    let after = around.after.unwrap_or(run.last());
                    let before = around.before.map_or(0, |report| report.captured[bucket]);
                    sum = sum.saturating_add(after.captured[bucket].saturating_sub(before));
                }
            }
            is_known.then_some(sum)
        }
    }

    /// Two reports of another run around all packets that a run counted between two stamps: the
    /// last report before these packets, and the first report after them.
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
