//! The nodes' reports: passes them to the ledger, and notices dead nodes.

use std::collections::{BTreeMap, BTreeSet};

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_cluster::analyzer::Analyzer;
use fanpcap_cluster::loss_account::{Account, Counts, Ledger, LedgerSettings, Report, Span, Spans};
use fanpcap_cluster::{NodeId, Part, Revision, Topology};
use fanpcap_select::Key;

use super::clock_offset::{ClockOffset, odd};
use super::missing_packets::MissingPackets;

/// Maximum number of nodes whose reports are taken.
const MOST: usize = 256;

/// The ledger of packets, and the nodes whose reports it gets.
#[derive(Debug)]
pub(super) struct NodeReports {
    ledger: Ledger,
    settings: LedgerSettings,
    nodes: BTreeMap<NodeId, ReportedNode>,
    /// For each node that must report, when its last report came, or since when its first report is
    /// expected.
    reported: BTreeMap<NodeId, u64>,
    part: Part,
    newest: Option<(Revision, Topology)>,
    /// Nanoseconds after which a silent node is dead.
    offline: u64,
    /// How many packets were lost before counters were reset, or before nodes were forgotten.
    past: u64,
    /// For each node removed from `nodes`, how many of its record numbers were missing then.
    silent: BTreeMap<NodeId, u64>,
    pub(super) refused: u64,
}

/// A node that reports.
#[derive(Debug, Default)]
struct ReportedNode {
    heard: u64,
    /// The boot of the node's machine, and when the counters began at 0 by the node's clock.
    counters: (u64, u64),
    /// When the node's counters began at 0, by the analyzer's clock.
    since: u64,
    clock_offset: ClockOffset,
    start: Option<Start>,
    missing_packets: Option<MissingPackets>,
    is_live: bool,
}

/// A node's first counts, which are subtracted from its later counts, if the node's counters are
/// older than the account.
#[derive(Debug)]
struct Start {
    /// For each bucket, how many packets the node had captured when it made its first report.
    captured: Box<Counts>,
    /// How many of the node's packets had come when the first report came.
    first: Box<Counts>,
    /// How many of the node's packets had come when no packet of `captured` was on its way any
    /// more. So at most `second - first` packets were on their way when the first report came.
    second: Option<Box<Counts>>,
    /// When the first report was made, by the node's clock.
    stamp: u64,
}

impl NodeReports {
    pub(super) fn new(settings: LedgerSettings, offline: u64, part: Part) -> Self {
        Self {
            ledger: Ledger::new(settings),
            settings,
            nodes: BTreeMap::new(),
            reported: BTreeMap::new(),
            part,
            newest: None,
            offline,
            past: 0,
            silent: BTreeMap::new(),
            refused: 0,
        }
    }

    /// Makes the account cover the buckets of `part`. If the account covered other buckets, begins
    /// a new account at `now`, in nanoseconds since 1970, and returns `true`.
    pub(super) fn follow(&mut self, part: Part, analyzer: &Analyzer, now: u64) -> bool {
        if part == self.part {
            return false;
        }
        let settings = LedgerSettings {
            begin: now,
            ..self.settings
        };
        let refused = self.refused;
        let newest = self.newest.take();
        *self = Self::new(settings, self.offline, part);
        if let Some((revision, topology)) = newest {
            self.add_topology(revision, topology);
        }
        self.refused = refused;
        self.silent = analyzer.missing();
        true
    }

    /// Adds a new topology of the cluster.
    pub(super) fn add_topology(&mut self, revision: Revision, topology: Topology) {
        let in_turn = topology.selection.key == Key::RoundRobin;
        self.ledger.set_in_turn(in_turn);
        self.newest = Some((revision, topology.clone()));
        self.ledger.add_topology(revision, topology);
    }

    /// Takes a node's report of a part of the buckets. The report came at `now`, in nanoseconds
    /// since 1970. Ignores a report of another part, because the node that sent it has an older or
    /// a newer list of analyzers.
    pub(super) fn take(&mut self, part: Part, mut report: Report, analyzer: &Analyzer, now: u64) {
        if part != self.part {
            return;
        }
        let node = report.summary.node;
        if self.nodes.len() >= MOST && !self.nodes.contains_key(&node) {
            return self.refused += 1;
        }
        let entry = self.nodes.entry(node).or_default();
        let counters = (report.summary.boot, report.summary.since);
        let stamp = report.summary.stamp;
        entry.correct(&mut report, now, self.settings.skew);
        let goes_on = entry.counters == counters;
        if entry.is_live && !goes_on {
            let captured = entry.captured(node, analyzer);
            let since = report.summary.since;
            self.ledger.end(node, since, captured);
            entry.is_live = false;
        }
        let captured = report.captured.clone();
        if self.ledger.take(report).is_err() {
            return self.refused += 1;
        }
        entry.counters = counters;
        let received = analyzer.received(node, counters.0, counters.1);
        let gaps = analyzer.missing_of(node);
        if !goes_on {
            let before = entry.missing_packets.take();
            let before = before.map_or(0, |it| it.at_rest());
            self.past = self.past.saturating_add(before);
            let is_new = entry.since >= self.settings.begin;
            // Records that went missing before the counters were reset count for the old counters.
            let silent = self.silent.remove(&node).unwrap_or(0);
            let others = if entry.heard > 0 { gaps } else { silent };
            entry.missing_packets = Some(MissingPackets::new(is_new, others));
        }
        if let (Some(missing_packets), Some(came)) = (&mut entry.missing_packets, &received) {
            let quiet = analyzer.quiet(node, counters.0);
            missing_packets.take((stamp, &captured), quiet, came, gaps);
        }
        match goes_on {
            true => entry.end_start(received, analyzer.reached(node, counters.0), &self.settings),
            false => entry.start(stamp, captured, received, self.settings.begin),
        }
        entry.is_live = true;
        entry.heard = now;
        self.reported.insert(node, now);
    }

    /// Updates the ledger. Call it once a second.
    pub(super) fn settle(&mut self, analyzer: &Analyzer, now: u64) {
        for (node, entry) in &mut self.nodes {
            if entry.is_live && entry.heard.saturating_add(self.offline) < now {
                let captured = entry.captured(*node, analyzer);
                self.ledger.end(*node, now, captured);
                entry.is_live = false;
            }
        }
        let live = |entry: &ReportedNode| entry.heard.saturating_add(10 * self.offline) >= now;
        self.nodes.retain(|node, entry| {
            if !live(entry) {
                self.past = self.past.saturating_add(entry.lost());
                let gaps = Some(analyzer.missing_of(*node)).filter(|gaps| *gaps > 0);
                self.silent.extend(gaps.map(|gaps| (*node, gaps)));
            }
            live(entry)
        });
        self.expect(now);
        let (doubles, refused) = (analyzer.doubles(), analyzer.refused());
        for bucket in self.part.buckets() {
            self.ledger.set_doubles(bucket, doubles[bucket]);
            self.ledger.set_refused(bucket, refused[bucket]);
        }
        self.ledger.settle();
    }

    /// Expects reports from the newest topology's nodes, and from live nodes that have reported.
    fn expect(&mut self, now: u64) {
        let newest = self.newest.as_ref();
        let entries = newest.map_or(&[][..], |(_, topology)| &topology.nodes);
        let live = self.nodes.iter().filter(|(_, entry)| entry.is_live);
        let live = live.map(|(node, _)| *node);
        let nodes: BTreeSet<NodeId> = live.chain(entries.iter().map(|entry| entry.node)).collect();
        self.reported.retain(|node, _| nodes.contains(node));
        for node in nodes {
            self.reported.entry(node).or_insert(now);
        }
    }

    /// Each expected node, and for how many nanoseconds it has not reported.
    pub(super) fn ages(&self, now: u64) -> Vec<(NodeId, u64)> {
        let reported = self.reported.iter();
        reported
            .map(|(node, at)| (*node, now.saturating_sub(*at)))
            .collect()
    }

    /// For each node, how many captured packets are known to be lost. The second value is the sum
    /// for all nodes, and includes losses from before counters were reset.
    pub(super) fn missing(&self, analyzer: &Analyzer) -> (BTreeMap<NodeId, u64>, u64) {
        let mut missing = analyzer.missing();
        for (node, missing) in &mut missing {
            let silent = self.silent.get(node).copied().unwrap_or(0);
            *missing = missing.saturating_sub(silent);
        }
        for (node, entry) in &self.nodes {
            let lost = match &entry.missing_packets {
                Some(missing_packets) if entry.is_live => {
                    missing_packets.by_now(analyzer.missing_of(*node))
                }
                _ => entry.lost(),
            };
            missing.insert(*node, lost);
        }
        let total = missing
            .values()
            .fold(self.past, |sum, it| sum.saturating_add(*it));
        (missing, total)
    }

    pub(super) fn account(&self) -> Account {
        self.ledger.account()
    }

    /// Clocks that differ from the other clocks by more than the allowed skew, each with the
    /// nanoseconds by which it is ahead. `None` is this machine's clock.
    pub(super) fn clocks(&self) -> Vec<(Option<NodeId>, i64)> {
        let live = self.nodes.iter().filter(|(_, entry)| entry.is_live);
        let offsets = live.map(|(node, entry)| (Some(*node), entry.clock_offset.ahead()));
        odd(offsets.chain([(None, 0)]), self.settings.skew)
    }
}

impl ReportedNode {
    /// If the node's clock is wrong, converts the times in the report to the analyzer's clock.
    fn correct(&mut self, report: &mut Report, now: u64, skew: u64) {
        let summary = &mut report.summary;
        self.clock_offset.note(summary.stamp, now);
        let ahead = self.clock_offset.beyond(skew);
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

    /// Handles the first report since a node's counters began at 0. The node made this report at
    /// `stamp`. If the counters are older than the analyzer's account, sets `start`.
    fn start(&mut self, stamp: u64, captured: Box<Counts>, came: Option<Box<Counts>>, begin: u64) {
        self.start = (self.since < begin).then_some(Start {
            captured,
            first: came.unwrap_or_else(|| Box::new([0; BUCKETS])),
            second: None,
            stamp,
        });
    }

    /// Sets `second` when no packet that the first report counts is on its way any more. The wait
    /// may be long, because the node may have kept many packets for this analyzer.
    fn end_start(
        &mut self,
        received: Option<Box<Counts>>,
        reached: Option<u64>,
        settings: &LedgerSettings,
    ) {
        let Some(start) = self.start.as_mut().filter(|start| start.second.is_none()) else {
            return;
        };
        let has_come = |reached| reached >= start.stamp.saturating_add(settings.skew);
        if reached.is_none_or(has_come) {
            start.second = Some(received.unwrap_or_else(|| Box::new([0; BUCKETS])));
        }
    }

    /// How many of the node's captured packets were lost before the node's traffic last stopped.
    fn lost(&self) -> u64 {
        self.missing_packets
            .as_ref()
            .map_or(0, MissingPackets::at_rest)
    }

    /// For each bucket, how many packets the node captured since its counters were 0: packets that
    /// came, and packets known to be lost. `None` if the node does not send packets.
    fn captured(&self, node: NodeId, analyzer: &Analyzer) -> Option<Box<Spans>> {
        let (boot, since) = self.counters;
        let received = analyzer.received(node, boot, since)?;
        let lost = self
            .missing_packets
            .as_ref()
            .map(MissingPackets::of_buckets);
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let captured = |bucket: usize| {
            let lost = lost.map_or(0, |lost| lost[bucket]);
            let came = signed(received[bucket].saturating_add(lost));
            let Some(start) = &self.start else {
                return Span::exactly(came);
            };
            let second = start.second.as_ref().unwrap_or(&received);
            let before = signed(start.captured[bucket]).saturating_add(came);
            Span {
                least: before.saturating_sub(signed(second[bucket])),
                most: before.saturating_sub(signed(start.first[bucket])),
            }
        };
        Some(Box::new(std::array::from_fn(captured)))
    }
}

#[cfg(test)]
mod tests;
