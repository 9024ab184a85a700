//! Keeps all nodes' counts: takes their reports, and their ends.

use std::collections::VecDeque;
use std::fmt;

use fanpcap_buckets::layout::BUCKETS;

use super::counter_run::{CounterRun, CounterRunEnd, RunAge, Spans, zeros};
use super::history::PortHistory;
use super::interval::Interval;
use super::report::{Counts, Report, Summary};
use super::span::Span;
use super::verdict::Verdict;
use crate::identity::NodeId;
use crate::topology::NODES;

/// What a ledger is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LedgerSettings {
    /// Nodes' clocks differ, and a packet reaches their counters, by this at most, in nanoseconds.
    /// Where all nodes have beacons, these tell it.
    pub skew: u64,
    /// When the ledger begins, in nanoseconds since 1970: what was counted before is not its.
    pub begin: u64,
    /// Whether an analyzer counts the doubles ([`Ledger::doubles`]). Else they are a span.
    pub analyzed: bool,
}

/// Why a report is not believed at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportError {
    /// It is older than a report that the ledger has, or a repetition of it.
    Old,
    /// A count is less than before, or more was captured than seen, or more than can be.
    Counts,
    /// The cluster has as many nodes as it can have.
    Full,
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Old => f.write_str("a report that is older than the newest"),
            Self::Counts => f.write_str("a report whose counts went back or contradict each other"),
            Self::Full => write!(f, "a report of one more node than the {NODES} there can be"),
        }
    }
}

impl std::error::Error for ReportError {}

/// The fate of all packets, according to the nodes' counts.
#[derive(Debug)]
pub struct Ledger {
    pub(super) settings: LedgerSettings,
    /// The settings' `skew`.
    pub(super) without_beacons: u64,
    pub(super) runs: Vec<CounterRun>,
    /// The node, boot and begin of lives that were given up last.
    pub(super) given_up: VecDeque<(NodeId, u64, u64)>,
    /// The latest end of a life that was given up.
    pub(super) over: u64,
    /// Up to where all live nodes' reports reach.
    pub(super) time: u64,
    /// Whether a life has been a witness.
    pub(super) begun: bool,
    /// What was offered at least when a bucket was at rest last, or a witness ended.
    pub(super) floor: Box<Spans>,
    /// What ended lives captured.
    pub(super) past: Box<Spans>,
    /// What ended lives lost in their rings.
    pub(super) past_ring: u64,
    pub(super) doubles: Box<Counts>,
    pub(super) refused: Box<Counts>,
    /// Whether packets are captured in turn.
    pub(super) in_turn: bool,
    /// Of each bucket, the interval since all was known exactly.
    pub(super) intervals: Box<[Interval; BUCKETS]>,
    /// Packets of each bucket doubled and lost before its interval.
    pub(super) closed: Box<[(Span, Span); BUCKETS]>,
    /// The past of ports, in the order of `last`.
    pub(super) history: Vec<PortHistory>,
}

impl Ledger {
    /// A ledger that begins.
    pub fn new(settings: LedgerSettings) -> Self {
        Self {
            settings,
            without_beacons: settings.skew,
            runs: Vec::new(),
            given_up: VecDeque::new(),
            over: 0,
            time: 0,
            begun: false,
            floor: zeros(),
            past: zeros(),
            past_ring: 0,
            doubles: Box::new([0; BUCKETS]),
            refused: Box::new([0; BUCKETS]),
            in_turn: false,
            intervals: Box::new([Interval::default(); BUCKETS]),
            closed: Box::new([(Span::default(), Span::default()); BUCKETS]),
            history: Vec::new(),
        }
    }

    /// Takes a node's report. One with counters that began anew ends the node's life before.
    ///
    /// # Errors
    ///
    /// The report is dropped.
    pub fn take(&mut self, report: Report) -> Result<(), ReportError> {
        let summary = report.summary;
        if !report.is_possible() {
            return Err(ReportError::Counts);
        }
        self.go_on(&summary);
        let of_node = |run: &&mut CounterRun| run.node == summary.node && run.is_live();
        let Some(run) = self.runs.iter_mut().find(of_node) else {
            return self.begin_run(report);
        };
        if (run.boot, run.since) != (summary.boot, summary.since) {
            if summary.stamp <= run.last().summary.stamp {
                return Err(ReportError::Old);
            }
            self.end(summary.node, summary.since, None, |_| true);
            return self.begin_run(report);
        }
        let last = run.last();
        if summary.stamp <= last.summary.stamp {
            return Err(ReportError::Old);
        }
        if report.goes_back(last) {
            return Err(ReportError::Counts);
        }
        run.keep(report);
        Ok(())
    }

    /// A node that counted as dead continues with the same counters: its life has not ended.
    fn go_on(&mut self, summary: &Summary) {
        let of_node = |run: &CounterRun| run.node == summary.node;
        let mut runs = self.runs.iter();
        if runs.any(|run| of_node(run) && run.is_live()) {
            return;
        }
        let mut ended = self.runs.iter_mut();
        if let Some(run) = ended.find(|run| run.goes_on_with(summary)) {
            run.end = None;
        }
    }

    fn begin_run(&mut self, report: Report) -> Result<(), ReportError> {
        if self.runs.len() >= 2 * NODES {
            return Err(ReportError::Full);
        }
        let Summary {
            node, boot, since, ..
        } = report.summary;
        let age = if self.given_up.contains(&(node, boot, since)) {
            RunAge::Resumed
        } else if since < self.settings.begin {
            RunAge::Older
        } else {
            RunAge::New
        };
        self.runs.push(CounterRun::new(report, age));
        Ok(())
    }

    /// A node is dead since `at`, in nanoseconds since 1970. What it captured in all is known in
    /// `captured`, if its packets went to an analyzer. Else it may have captured what came of the
    /// buckets that it `owned` after its last report.
    pub fn end(
        &mut self,
        node: NodeId,
        at: u64,
        captured: Option<Box<Spans>>,
        owned: impl Fn(usize) -> bool,
    ) {
        let of_node = |run: &&mut CounterRun| run.node == node && run.is_live();
        if let Some(run) = self.runs.iter_mut().find(of_node) {
            run.end = Some(CounterRunEnd {
                at: at.max(run.last().summary.stamp),
                captured,
                owned: Box::new(std::array::from_fn(owned)),
                is_reached: false,
            });
        }
    }

    /// Says how many packets of a bucket an analyzer found twice, since the ledger began.
    pub fn doubles(&mut self, bucket: usize, doubles: u64) {
        self.doubles[bucket] = doubles;
    }

    /// Says how many packets of a bucket nodes captured that an analyzer refused, since the ledger
    /// began: of a bucket that another node had, or by a topology that the cluster never had.
    pub fn refused(&mut self, bucket: usize, refused: u64) {
        self.refused[bucket] = refused;
    }

    /// What the others' counts of the last five minutes say of a node.
    pub fn verdict(&self, node: NodeId) -> Option<Verdict> {
        let live = |run: &&CounterRun| run.node == node && run.is_live();
        self.runs.iter().find(live).map(|run| run.named(self.time))
    }
}
