//! Nodes to which the newest topology gives buckets, and that do not report.

use fanpcap_buckets::layout::BUCKETS;

use super::counter_run::CounterRun;
use super::interval::RunPart;
use super::ledger::Ledger;
use super::ownership::add_flags;
use super::span::Span;
use crate::identity::NodeId;

/// So many nanoseconds after a topology is known, every node that hears the coordinator uses it.
const LOADED: u64 = 1_000_000_000;

impl Ledger {
    /// Moves the end of each ended run to the present time if the newest topology gives buckets to
    /// its node: the coordinator may hear the node, and the node may capture.
    pub(super) fn extend_ends(&mut self) {
        if self.settings.analyzed {
            // The analyzer knows how many of the node's packets came.
            return;
        }
        for at in 0..self.runs.len() {
            let run = &self.runs[at];
            if run.is_live() {
                continue;
            }
            let goes_on = self.ownership.has_buckets(run.node) && !self.has_newer(run);
            let known = self.known(run);
            let time = self.time;
            let Some(end) = self.runs[at].end.as_mut() else {
                continue;
            };
            (end.goes_on, end.known) = (goes_on, Some(known));
            if goes_on {
                end.at = end.at.max(time);
                (end.captured, end.unreported, end.is_reached) = (None, None, false);
            }
        }
    }

    /// Ends runs whose nodes lost all buckets by the newest topology.
    pub(super) fn note_drops(&mut self) {
        let live = self.runs.iter().filter(|run| run.is_live());
        let newest = live.map(|run| run.last().summary.stamp).max().unwrap_or(0);
        for run in &mut self.runs {
            let Some(end) = run.end.as_mut().filter(|end| end.goes_on) else {
                continue;
            };
            end.goes_on = self.ownership.has_buckets(run.node);
            if !end.goes_on {
                end.at = end.at.max(newest.saturating_add(LOADED));
            }
        }
    }

    /// Whether the counters of an ended run's node began again at 0. The node's clock may be
    /// behind.
    pub(super) fn has_newer(&self, run: &CounterRun) -> bool {
        let is_newer = |other: &CounterRun| other.is_live() || other.since > run.since;
        let mut others = self.runs.iter().filter(|other| other.node == run.node);
        others.any(is_newer)
    }

    /// Notes which buckets the newest topology gives to nodes that have not reported.
    pub(super) fn note_never_reported(&mut self) {
        let has_run = |node: NodeId| self.runs.iter().any(|run| run.node == node);
        let nodes = self.ownership.nodes();
        let silent: Vec<NodeId> = nodes.filter(|node| !has_run(*node)).collect();
        for node in silent {
            let flags = self.never_reported.entry(node);
            let flags = flags.or_insert_with(|| Box::new([false; BUCKETS]));
            add_flags(flags, self.ownership.now(node).as_deref());
        }
    }

    /// For each node that may have had the bucket and has not reported: the packets of the bucket's
    /// interval, in which `offered` packets were offered.
    pub(super) fn parts_never_reported(
        &self,
        bucket: usize,
        offered: Span,
    ) -> impl Iterator<Item = RunPart> {
        let most = offered.most.max(0);
        let nodes = self.never_reported.values().filter(move |had| had[bucket]);
        nodes.map(move |_| RunPart {
            captured: Span { least: 0, most },
            may_double: 0,
            unreported: most,
            had: true,
            is_ended: true,
            is_out_of_turn: false,
            saw_all: false,
        })
    }

    /// Whether a node of the newest topology may have the bucket, and has not reported yet.
    pub(super) fn awaits(&self, bucket: usize) -> bool {
        let mut nodes = self.ownership.nodes();
        nodes.any(|node| {
            self.never_reported
                .get(&node)
                .is_some_and(|had| had[bucket])
        })
    }

    /// Forgets that nodes had the bucket and never reported. While one of them is in the newest
    /// topology, the interval of the bucket does not end, so they all have left.
    pub(super) fn forget_never_reported(&mut self, bucket: usize) {
        for had in self.never_reported.values_mut() {
            had[bucket] = false;
        }
        self.never_reported.retain(|_, had| had.contains(&true));
    }
}
