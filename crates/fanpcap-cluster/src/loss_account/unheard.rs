//! Nodes of a topology that have not reported yet: what they captured is unknown.

use fanpcap_buckets::layout::BUCKETS;

use super::interval::RunPart;
use super::ledger::Ledger;
use super::ownership::add_flags;
use super::span::Span;
use crate::identity::NodeId;

impl Ledger {
    /// Notes which buckets the newest topology gives to nodes that have not reported.
    pub(super) fn note_unheard(&mut self) {
        let has_run = |node: NodeId| self.runs.iter().any(|run| run.node == node);
        let nodes = self.ownership.nodes();
        let unheard: Vec<NodeId> = nodes.filter(|node| !has_run(*node)).collect();
        for node in unheard {
            let flags = self.unheard.entry(node);
            let flags = flags.or_insert_with(|| Box::new([false; BUCKETS]));
            add_flags(flags, self.ownership.now(node).as_deref());
        }
    }

    /// For each node that may have had the bucket and has not reported: the packets of the bucket's
    /// interval, in which `offered` packets were offered.
    pub(super) fn unheard(&self, bucket: usize, offered: Span) -> impl Iterator<Item = RunPart> {
        let most = offered.most.max(0);
        let nodes = self.unheard.values().filter(move |had| had[bucket]);
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

    /// Whether a node of the newest topology may report packets of the bucket's interval later.
    pub(super) fn awaits(&self, bucket: usize) -> bool {
        let mut nodes = self.ownership.nodes();
        nodes.any(|node| self.unheard.get(&node).is_some_and(|had| had[bucket]))
    }

    /// Forgets that a node that is not in the newest topology had the bucket, and never reported.
    pub(super) fn forget_unheard(&mut self, bucket: usize) {
        for had in self.unheard.values_mut() {
            had[bucket] = false;
        }
        self.unheard.retain(|_, had| had.contains(&true));
    }
}
