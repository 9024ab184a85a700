//! What an analyzer knows of the nodes' counts: their reports put together, and their ends.

use std::collections::BTreeMap;

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_cluster::NodeId;
use fanpcap_cluster::analyzer::Analyzer;
use fanpcap_cluster::record::decode_counts;
use fanpcap_cluster::witness::{Account, Assembly, Counts, Ledger, LedgerSettings};

/// Nodes whose reports are put together at once.
const MOST: usize = 256;

/// The ledger, and what leads to it.
#[derive(Debug)]
pub(super) struct Books {
    ledger: Ledger,
    nodes: BTreeMap<NodeId, Entry>,
    /// Nanoseconds after which a silent node is dead.
    offline: u64,
    /// Reports that were not believed.
    pub(super) refused: u64,
}

#[derive(Debug, Default)]
struct Entry {
    assembly: Assembly,
    heard: u64,
    /// The counters' begin, and what the analyzer had of the node then.
    since: u64,
    received: Option<Box<Counts>>,
    is_live: bool,
}

impl Books {
    pub(super) fn new(settings: LedgerSettings, offline: u64) -> Self {
        Self {
            ledger: Ledger::new(settings),
            nodes: BTreeMap::new(),
            offline,
            refused: 0,
        }
    }

    /// Takes a message with counts that came at `now`, in nanoseconds since 1970.
    pub(super) fn take(&mut self, message: &[u8], cluster: u64, analyzer: &Analyzer, now: u64) {
        let chunk = match decode_counts(message) {
            Ok((head, chunk)) if head.cluster == cluster => chunk,
            Ok(_) | Err(_) => return self.refused += 1,
        };
        let node = chunk.summary.node;
        if self.nodes.len() >= MOST && !self.nodes.contains_key(&node) {
            return self.refused += 1;
        }
        let entry = self.nodes.entry(node).or_default();
        let Some(report) = entry.assembly.take(&chunk) else {
            return;
        };
        let since = report.summary.since;
        if entry.is_live && entry.since != since {
            let captured = entry.captured(analyzer.received(node));
            self.ledger.end(node, since, captured, |_| true);
            entry.is_live = false;
        }
        if self.ledger.take(report).is_err() {
            return self.refused += 1;
        }
        if !entry.is_live {
            entry.since = since;
            entry.received = analyzer.received(node).map(|counts| Box::new(*counts));
            entry.is_live = true;
        }
        entry.heard = now;
    }

    /// Settles the books. Call it once a second.
    pub(super) fn settle(&mut self, analyzer: &Analyzer, now: u64) {
        for (node, entry) in &mut self.nodes {
            if entry.is_live && entry.heard.saturating_add(self.offline) < now {
                let captured = entry.captured(analyzer.received(*node));
                self.ledger.end(*node, now, captured, |_| true);
                entry.is_live = false;
            }
        }
        let live = |entry: &Entry| entry.heard.saturating_add(10 * self.offline) >= now;
        self.nodes.retain(|_, entry| live(entry));
        for (bucket, doubles) in analyzer.doubles().iter().enumerate() {
            self.ledger.doubles(bucket, *doubles);
        }
        self.ledger.settle();
    }

    pub(super) fn account(&self) -> Account {
        self.ledger.account()
    }
}

impl Entry {
    /// What came of the node's packets since its counters began, if any ever came.
    fn captured(&self, received: Option<&Counts>) -> Option<Box<Counts>> {
        let now = received?;
        let before = |bucket: usize| self.received.as_ref().map_or(0, |counts| counts[bucket]);
        let since = |bucket: usize| now[bucket].saturating_sub(before(bucket));
        let counts: Counts = std::array::from_fn(since);
        (counts.iter().sum::<u64>() > 0 && counts.len() == BUCKETS).then(|| Box::new(counts))
    }
}
