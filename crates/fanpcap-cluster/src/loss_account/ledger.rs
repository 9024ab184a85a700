//! The ledger of all nodes' counts. Its caller adds each report of a node, and each node's death.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use fanpcap_buckets::layout::BUCKETS;

use super::counter_run::{CounterRun, CounterRunEnd, RunAge, Spans, zeros};
use super::history::PortHistory;
use super::interval::Interval;
use super::ownership::{Flags, Ownership, add_flags};
use super::report::{Counts, Report, Summary};
use super::span::{Span, signed};
use super::verdict::Verdict;
use crate::identity::{NodeId, Revision};
use crate::topology::{NODES, Topology};

/// A ledger's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LedgerSettings {
    /// Upper limit, in nanoseconds, of the clock difference between nodes plus the delay until a
    /// node counts a packet. If all nodes see beacons, the ledger measures this sum instead.
    pub skew: u64,
    /// When the ledger begins, in nanoseconds since 1970. The ledger leaves out earlier packets.
    pub begin: u64,
    /// Whether [`Ledger::set_doubles`] is called. If not, the account has only limits of the
    /// doubles.
    pub analyzed: bool,
}

/// Why a report is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportError {
    /// The report is a repeat, or older than a report that the ledger has.
    Old,
    /// A count fell, a count is greater than possible, or more packets were captured than seen.
    Counts,
    /// The cluster has the maximum number of nodes.
    Full,
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Old => f.write_str("a report that is older than the newest"),
            Self::Counts => f.write_str("a report whose counts went back or contradict each other"),
            Self::Full => write!(
                f,
                "a report of one more node, but the limit is {NODES} nodes"
            ),
        }
    }
}

impl std::error::Error for ReportError {}

/// The counts of all nodes. The account of all packets is computed from these counts.
#[derive(Debug)]
pub struct Ledger {
    pub(super) settings: LedgerSettings,
    /// The `skew` of the settings, which applies when not all nodes see beacons.
    pub(super) without_beacons: u64,
    pub(super) runs: Vec<CounterRun>,
    /// The ended runs that were last added to `past`: node, boot and start time of each run.
    pub(super) given_up: VecDeque<(NodeId, u64, u64)>,
    /// The latest of the times at which the runs in `past` ended.
    pub(super) over: u64,
    /// The time up to which every live node has reported.
    pub(super) time: u64,
    /// Whether there has ever been an observer: a node whose counts of seen packets are used.
    pub(super) begun: bool,
    /// For each bucket, the packets offered until its traffic or an observer's run last ended.
    pub(super) floor: Box<Spans>,
    /// How many packets were captured by ended runs.
    pub(super) past: Box<Spans>,
    /// How many packets were lost in the rings of ended runs.
    pub(super) past_ring: u64,
    pub(super) doubles: Box<Counts>,
    pub(super) refused: Box<Counts>,
    pub(super) ownership: Ownership,
    /// The nodes that have no run, and the buckets that topologies gave to each of them.
    pub(super) never_reported: BTreeMap<NodeId, Box<Flags>>,
    /// Whether packets are captured in turn.
    pub(super) in_turn: bool,
    /// For each bucket, the interval since its counts were last known exactly.
    pub(super) intervals: Box<[Interval; BUCKETS]>,
    /// For each bucket, the packets doubled and lost before its entry in `intervals` began.
    pub(super) closed: Box<[(Span, Span); BUCKETS]>,
    /// The history of ports, sorted by [`PortHistory::last`], the newest at the end.
    pub(super) history: Vec<PortHistory>,
}

impl Ledger {
    /// An empty ledger.
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
            ownership: Ownership::default(),
            never_reported: BTreeMap::new(),
            in_turn: false,
            intervals: Box::new([Interval::default(); BUCKETS]),
            closed: Box::new([(Span::default(), Span::default()); BUCKETS]),
            history: Vec::new(),
        }
    }

    /// Takes a node's report. If the node's counters were reset, ends the node's earlier run.
    ///
    /// # Errors
    /// If the report is refused, the ledger stays as it was.
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
            self.end(summary.node, summary.since, None);
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

    /// Continues the ended run of a node that reports again with the same counters.
    fn go_on(&mut self, summary: &Summary) {
        let of_node = |run: &CounterRun| run.node == summary.node;
        let mut runs = self.runs.iter();
        if runs.any(|run| of_node(run) && run.is_live()) {
            return;
        }
        let mut ended = self.runs.iter_mut();
        let Some(run) = ended.find(|run| run.goes_on_with(summary)) else {
            return;
        };
        run.silent = Some(run.last().summary.stamp);
        if let Some(end) = run.end.take() {
            let runs = self.runs.iter_mut();
            runs.for_each(|run| run.count_dead_as_reported(&end.owned));
        }
    }

    /// Takes a new topology. If the ledger missed topologies before this one, any node may have had
    /// any bucket.
    pub fn add_topology(&mut self, revision: Revision, topology: Topology) {
        let Some(before) = self.ownership.follow(revision, topology) else {
            return;
        };
        for run in &mut self.runs {
            let had = self.ownership.since(run.node, before);
            add_flags(&mut run.had, had.as_deref());
            // A node may have loaded this topology before it counted as dead.
            let owned = self.ownership.since(run.node, run.last().summary.revision);
            if let Some(end) = run.end.as_mut().filter(|end| !end.is_reached) {
                end.owned = owned.unwrap_or_else(|| Box::new([true; BUCKETS]));
            }
        }
        self.note_never_reported();
        self.note_drops();
    }

    fn begin_run(&mut self, report: Report) -> Result<(), ReportError> {
        if self.runs.len() >= 2 * NODES {
            return Err(ReportError::Full);
        }
        let Summary {
            node,
            boot,
            since,
            stamp,
            ..
        } = report.summary;
        let age = if self.given_up.contains(&(node, boot, since)) {
            RunAge::Resumed
        } else if since < self.settings.begin {
            RunAge::Older
        } else {
            RunAge::New
        };
        let mut run = CounterRun::new(report, age);
        if let (RunAge::New, Some(had)) = (age, self.ownership.ever(node)) {
            run.had = had;
        }
        let had = self.never_reported.remove(&node);
        if age == RunAge::Resumed {
            run.unbooked = Box::new(std::array::from_fn(|bucket| {
                let captured = signed(run.reports[0].captured[bucket]);
                let is_new = had.as_ref().is_some_and(|had| had[bucket]);
                Span {
                    least: -captured,
                    most: if is_new { 0 } else { -captured },
                }
            }));
        }
        run.note_closed(&self.intervals);
        let ends = self.runs.iter_mut().filter(|run| run.node == node);
        for end in ends.filter_map(|run| run.end.as_mut().filter(|end| end.goes_on)) {
            // The node captured until its counters began again. Its clock may be behind.
            let until = if since > end.at { since } else { stamp };
            (end.at, end.goes_on) = (end.at.max(until), false);
        }
        self.runs.push(run);
        Ok(())
    }

    /// Notes that a node has been dead since `at`, in nanoseconds since 1970. `captured` counts the
    /// node's packets that came to an analyzer. With `None`, it is unknown how many packets of its
    /// buckets the node captured after its last report.
    pub fn end(&mut self, node: NodeId, at: u64, captured: Option<Box<Spans>>) {
        let of_node = |run: &&mut CounterRun| run.node == node && run.is_live();
        if let Some(run) = self.runs.iter_mut().find(of_node) {
            let owned = self.ownership.since(node, run.last().summary.revision);
            run.end = Some(CounterRunEnd {
                at: at.max(run.last().summary.stamp),
                goes_on: false,
                known: None,
                captured,
                unreported: None,
                owned: owned.unwrap_or_else(|| Box::new([true; BUCKETS])),
                is_reached: false,
            });
        }
    }

    /// Sets how many packets of a bucket the analyzer found to be doubles since the ledger began.
    pub fn set_doubles(&mut self, bucket: usize, doubles: u64) {
        self.doubles[bucket] = doubles;
    }

    /// Sets how many captured packets of a bucket the analyzer refused since the ledger began,
    /// because another node had the bucket, or because the cluster never had the packet's topology.
    pub fn set_refused(&mut self, bucket: usize, refused: u64) {
        self.refused[bucket] = refused;
    }

    /// The verdict on a node's port, by the other nodes' counts of the last five minutes.
    pub fn verdict(&self, node: NodeId) -> Option<Verdict> {
        let live = |run: &&CounterRun| run.node == node && run.is_live();
        self.runs.iter().find(live).map(|run| run.named(self.time))
    }
}
