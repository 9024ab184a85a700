//! What an analyzer knows of the nodes' counts: their reports put together, and their ends.

use std::collections::BTreeMap;

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_cluster::NodeId;
use fanpcap_cluster::analyzer::Analyzer;
use fanpcap_cluster::record::decode_counts;
use fanpcap_cluster::witness::{
    Account, Assembly, Counts, Ledger, LedgerSettings, Report, Span, Spans,
};

use super::offset::{Offset, odd};
use super::part::Part;

/// Nodes whose reports are put together at once.
const MOST: usize = 256;

/// The ledger, and what leads to it.
#[derive(Debug)]
pub(super) struct Books {
    ledger: Ledger,
    settings: LedgerSettings,
    nodes: BTreeMap<NodeId, Entry>,
    part: Part,
    /// Nanoseconds after which a silent node is dead.
    offline: u64,
    /// Reports that were not believed.
    pub(super) refused: u64,
}

/// What is known of a node's reports.
#[derive(Debug, Default)]
struct Entry {
    assembly: Assembly,
    heard: u64,
    /// The node's boot, and when its counters were 0 by its own clock.
    counters: (u64, u64),
    /// When they were 0 by the analyzer's clock.
    since: u64,
    offset: Offset,
    start: Option<Start>,
    is_live: bool,
}

/// Where the accounts of counters begin that are older than the analyzer.
#[derive(Debug)]
struct Start {
    /// What the first report says that was captured.
    captured: Box<Counts>,
    /// What had come of it by the first report, and by the second one: what was on its way lies
    /// between.
    first: Box<Counts>,
    second: Option<Box<Counts>>,
}

impl Books {
    pub(super) fn new(settings: LedgerSettings, offline: u64, part: Part) -> Self {
        Self {
            ledger: Ledger::new(settings),
            settings,
            nodes: BTreeMap::new(),
            part,
            offline,
            refused: 0,
        }
    }

    /// Accounts for these buckets. Others than before begin new books, at `now` in nanoseconds
    /// since 1970. Returns whether they do.
    pub(super) fn follow(&mut self, part: Part, now: u64) -> bool {
        if part == self.part {
            return false;
        }
        let settings = LedgerSettings {
            begin: now,
            ..self.settings
        };
        let refused = self.refused;
        *self = Self::new(settings, self.offline, part);
        self.refused = refused;
        true
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
        let Some(mut report) = entry.assembly.take(&chunk) else {
            return;
        };
        for bucket in (0..report.seen.len()).filter(|bucket| !self.part.has(*bucket)) {
            report.seen[bucket] = 0;
            report.captured[bucket] = 0;
        }
        let counters = (report.summary.boot, report.summary.since);
        entry.correct(&mut report, now, self.settings.skew);
        if entry.is_live && entry.counters != counters {
            let captured = entry.captured(node, analyzer);
            let since = report.summary.since;
            self.ledger.end(node, since, captured, |_| true);
            entry.is_live = false;
        }
        let captured = report.captured.clone();
        if self.ledger.take(report).is_err() {
            return self.refused += 1;
        }
        entry.counters = counters;
        let received = analyzer.received(node, counters.0, counters.1);
        entry.begin(captured, received, self.settings.begin);
        entry.heard = now;
    }

    /// Settles the books. Call it once a second.
    pub(super) fn settle(&mut self, analyzer: &Analyzer, now: u64) {
        for (node, entry) in &mut self.nodes {
            if entry.is_live && entry.heard.saturating_add(self.offline) < now {
                let captured = entry.captured(*node, analyzer);
                self.ledger.end(*node, now, captured, |_| true);
                entry.is_live = false;
            }
        }
        let live = |entry: &Entry| entry.heard.saturating_add(10 * self.offline) >= now;
        self.nodes.retain(|_, entry| live(entry));
        let (doubles, refused) = (analyzer.doubles(), analyzer.refused());
        for bucket in (0..doubles.len()).filter(|bucket| self.part.has(*bucket)) {
            self.ledger.doubles(bucket, doubles[bucket]);
            self.ledger.refused(bucket, refused[bucket]);
        }
        self.ledger.settle();
    }

    pub(super) fn account(&self) -> Account {
        self.ledger.account()
    }

    /// Clocks that differ from the others' by more than the skew, in nanoseconds ahead. `None` is
    /// this machine's.
    pub(super) fn clocks(&self) -> Vec<(Option<NodeId>, i64)> {
        let live = self.nodes.iter().filter(|(_, entry)| entry.is_live);
        let offsets = live.map(|(node, entry)| (Some(*node), entry.offset.ahead()));
        odd(offsets.chain([(None, 0)]), self.settings.skew)
    }
}

impl Entry {
    /// Puts a report's times on the analyzer's clock, where the node's clock is wrong.
    fn correct(&mut self, report: &mut Report, now: u64, skew: u64) {
        let summary = &mut report.summary;
        self.offset.note(summary.stamp, now);
        let ahead = self.offset.beyond(skew);
        if self.counters != (summary.boot, summary.since) {
            self.since = summary.since.saturating_add_signed(ahead.saturating_neg());
        }
        summary.stamp = summary.stamp.saturating_add_signed(ahead.saturating_neg());
        summary.since = self.since;
        if summary.beacon.seen != 0 {
            summary.beacon.seen = summary
                .beacon
                .seen
                .saturating_add_signed(ahead.saturating_neg());
        }
    }

    /// Notes where the accounts of these counters begin, if they are older than the analyzer.
    fn begin(&mut self, captured: Box<Counts>, received: Option<Box<Counts>>, begin: u64) {
        let received = received.unwrap_or_else(|| Box::new([0; BUCKETS]));
        if !self.is_live {
            self.start = (self.since < begin).then_some(Start {
                captured,
                first: received,
                second: None,
            });
        } else if let Some(start) = self.start.as_mut().filter(|start| start.second.is_none()) {
            start.second = Some(received);
        }
        self.is_live = true;
    }

    /// What came of the node's packets since its counters began, if it sends packets.
    fn captured(&self, node: NodeId, analyzer: &Analyzer) -> Option<Box<Spans>> {
        let (boot, since) = self.counters;
        let received = analyzer.received(node, boot, since)?;
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let captured = |bucket: usize| {
            let came = signed(received[bucket]);
            let Some(start) = &self.start else {
                return Span::exactly(came);
            };
            let second = start.second.as_ref().unwrap_or(&received);
            let before = signed(start.captured[bucket]);
            Span {
                least: before + came - signed(second[bucket]),
                most: before + came - signed(start.first[bucket]),
            }
        };
        Some(Box::new(std::array::from_fn(captured)))
    }
}

#[cfg(test)]
mod tests;
