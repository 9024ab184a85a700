//! A run: the counters of one node from when they were 0 until they end.

use std::collections::VecDeque;

use fanpcap_buckets::layout::BUCKETS;

use super::interval::Interval;
use super::ownership::Flags;
use super::port::{Port, RECENT};
use super::report::{Counts, Report, Summary};
use super::span::{Span, signed};
use super::verdict::Verdict;
use crate::identity::{NodeId, Revision};

/// How many of a run's newest reports are kept. A silent node counts as dead before another node
/// has sent this many reports.
const KEPT: usize = 20;

/// One span for each bucket.
pub type Spans = [Span; BUCKETS];

/// Spans that are exactly 0.
pub(super) fn zeros() -> Box<Spans> {
    Box::new([Span::default(); BUCKETS])
}

/// The end of a run.
#[derive(Clone, Debug)]
pub(super) struct CounterRunEnd {
    /// When the run ended, in nanoseconds since 1970. While `goes_on` is
    /// set, `extend_ends` moves it to the present time.
    pub(super) at: u64,
    /// Whether the node may go on capturing, because the newest topology gives it buckets. Perhaps
    /// only the analyzer does not hear the node.
    pub(super) goes_on: bool,
    /// How many packets of each bucket were certainly offered by the run's last report. `None`
    /// until the ledger first evaluates reports after the end.
    pub(super) known: Option<Box<[i64; BUCKETS]>>,
    /// How many packets the run captured in total, if that is known.
    pub(super) captured: Option<Box<Spans>>,
    /// For each bucket, an upper limit of the packets that this run and a run that had ended
    /// earlier both captured after their last reports. `None` until the limit is known.
    pub(super) unreported: Option<Box<Counts>>,
    /// The buckets of which the run may have captured packets after its last report.
    pub(super) owned: Box<Flags>,
    /// Whether all nodes' reports have reached `at`. Then `captured` does not change any more.
    pub(super) is_reached: bool,
}

/// A run: the counters of one node from when they were 0 until they end.
#[derive(Clone, Debug)]
pub(super) struct CounterRun {
    pub(super) node: NodeId,
    pub(super) boot: u64,
    /// When the counters were 0.
    pub(super) since: u64,
    /// The reports, the newest last; never empty.
    pub(super) reports: VecDeque<Report>,
    /// The packets offered before the run's counts began; `None` if the node is not an observer.
    pub(super) before: Option<Box<Spans>>,
    /// The packets that the run captured before the ledger began, as negative numbers.
    pub(super) unbooked: Box<Spans>,
    /// Whether `unbooked` is known.
    pub(super) booked: bool,
    /// Whether the counters are older than the ledger, or continue a run that was given up.
    pub(super) age: RunAge,
    /// The packets that the run had captured when each bucket's interval began. For what it
    /// captured since then, see `Span::since`.
    pub(super) captured_before: Box<Spans>,
    /// For each bucket, an upper limit of the packets of its interval that the run and another node
    /// both captured.
    pub(super) may_double: Box<Counts>,
    /// For each bucket, an upper limit of the interval's other packets that the run captured and
    /// that a dead node may also have captured, after that node's last report.
    pub(super) may_double_dead: Box<Counts>,
    /// The buckets that the node may have had in their present intervals.
    pub(super) had: Box<Flags>,
    /// A topology that is not known, and since when kept reports have named it or others that are
    /// not known.
    pub(super) unknown_since: Option<(Revision, u64)>,
    /// Whether such a topology may still become known.
    pub(super) follows_unknown: bool,
    /// The stamp of the last report that was compared with the other nodes' reports.
    pub(super) compared: u64,
    /// The stamp of the last report before the node counted as dead, if the node reported again.
    pub(super) silent: Option<u64>,
    /// The run counts as an observer only from this time on.
    pub(super) from: u64,
    /// The verdict by the other nodes' newest counts; never `Lossy`, which `port` finds.
    pub(super) verdict: Verdict,
    /// When there was last enough traffic for a verdict.
    pub(super) judged: u64,
    pub(super) port: Port,
    /// Packets lost before the node's port. Losses in a bucket are added when its traffic stops.
    pub(super) mirror: i64,
    /// When the node may last have lacked a packet, if packets are captured in turn.
    pub(super) lacked: Option<u64>,
    pub(super) end: Option<CounterRunEnd>,
}

/// Whether a run's counters are older than the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RunAge {
    /// The counters were 0 after the ledger began.
    New,
    /// The counters were 0 before the ledger began.
    Older,
    /// The counters continue those of an earlier run, which the ledger gave up.
    Resumed,
}

impl CounterRun {
    /// Whether `summary` is of the same counters, and newer than the last report.
    pub(super) fn goes_on_with(&self, summary: &Summary) -> bool {
        let counters = (self.node, self.boot, self.since);
        counters == (summary.node, summary.boot, summary.since)
            && self.last().summary.stamp < summary.stamp
    }

    pub(super) fn new(report: Report, age: RunAge) -> Self {
        let summary = report.summary;
        let may_double = match age {
            // The packets before the first report are not compared, so each may be a double.
            RunAge::New => report.captured.clone(),
            RunAge::Older | RunAge::Resumed => Box::new([0; BUCKETS]),
        };
        Self {
            age,
            captured_before: zeros(),
            may_double,
            may_double_dead: Box::new([0; BUCKETS]),
            had: Box::new([true; BUCKETS]),
            unknown_since: None,
            follows_unknown: false,
            compared: summary.stamp,
            silent: None,
            node: summary.node,
            boot: summary.boot,
            since: summary.since,
            from: summary.since,
            reports: VecDeque::from([report]),
            before: None,
            unbooked: zeros(),
            booked: false,
            verdict: Verdict::Sound,
            judged: 0,
            port: Port::new(),
            mirror: 0,
            lacked: (age != RunAge::New).then_some(summary.stamp),
            end: None,
        }
    }

    /// Notes that the run may have captured the packets of its first report before the present
    /// intervals.
    pub(super) fn note_closed(&mut self, intervals: &[Interval; BUCKETS]) {
        let first = &self.reports[0];
        for (bucket, before) in self.captured_before.iter_mut().enumerate() {
            if intervals[bucket].since > self.since {
                let captured = signed(first.captured[bucket]);
                *before = Span {
                    least: captured.saturating_add(self.unbooked[bucket].least),
                    most: 0,
                };
            }
        }
    }

    pub(super) fn keep(&mut self, report: Report) {
        if self.reports.len() == KEPT {
            if self.reports[1].summary.stamp > self.compared {
                self.note_oldest();
            }
            self.reports.pop_front();
        }
        self.reports.push_back(report);
    }

    /// Notes that other nodes may have captured what the node captured between the oldest two
    /// reports.
    fn note_oldest(&mut self) {
        let [from, to] = [0, 1].map(|at| &self.reports[at]);
        for (bucket, doubles) in self.may_double.iter_mut().enumerate() {
            let captured = to.captured[bucket].saturating_sub(from.captured[bucket]);
            *doubles = doubles.saturating_add(captured);
        }
        self.compared = to.summary.stamp;
    }

    /// Notes that a dead node that owned these buckets reports again. Its reports now have all
    /// packets of these buckets that it captured.
    pub(super) fn count_dead_as_reported(&mut self, owned: &Flags) {
        let sums = self.may_double.iter_mut();
        let dead = self.may_double_dead.iter_mut();
        for ((sum, doubles), _) in sums.zip(dead).zip(owned).filter(|(_, owns)| **owns) {
            *sum = sum.saturating_add(std::mem::take(doubles));
        }
    }

    /// Whether the node may have had `bucket` at some time in the bucket's present interval.
    pub(super) fn may_have_had(&self, bucket: usize) -> bool {
        self.follows_unknown || self.had[bucket]
    }

    /// The newest report that was compared with the other nodes' reports.
    pub(super) fn compared(&self) -> Option<&Report> {
        self.report_until(self.compared)
    }

    /// The last report with a stamp of `time` or earlier.
    pub(super) fn report_until(&self, time: u64) -> Option<&Report> {
        let mut reports = self.reports.iter();
        reports.rfind(|report| report.summary.stamp <= time)
    }

    /// Whether the run is an observer, and all packets of a bucket that were offered before its
    /// counts began are known.
    pub(super) fn is_exact(&self, bucket: usize) -> bool {
        let before = self.before.as_ref();
        before.is_some_and(|before| before[bucket].is_exact())
    }

    pub(super) fn last(&self) -> &Report {
        &self.reports[self.reports.len() - 1]
    }

    pub(super) fn is_live(&self) -> bool {
        self.end.is_none()
    }

    /// The verdict of the last minutes: `Sound` if there was too little traffic in these minutes.
    /// The field `verdict` then keeps its value.
    pub(super) fn named(&self, time: u64) -> Verdict {
        let is_recent = self.judged.saturating_add(RECENT) >= time;
        if is_recent && self.verdict != Verdict::Sound {
            self.verdict
        } else if self.port.parts > 0 {
            Verdict::Lossy(self.port.parts)
        } else {
            Verdict::Sound
        }
    }

    /// Whether the newest counts show that the port is blind, wrong or double.
    pub(super) fn is_named_at(&self, time: u64) -> bool {
        self.verdict != Verdict::Sound && self.judged == time
    }

    /// Two reports around `time`: see [`around`].
    pub(super) fn around(&self, time: u64, skew: u64) -> ReportsAround<'_> {
        around(&self.reports, time, skew)
    }

    /// The packets of a bucket offered by the time of `around`, according to this observer only.
    pub(super) fn offered(&self, around: &ReportsAround<'_>, bucket: usize) -> Option<Span> {
        let before = self.before.as_ref()?[bucket];
        Some(before + around.seen(bucket))
    }
}

/// Two of a run's reports around `time`. All packets of the first report were offered by `time`.
/// The second report has all packets that were offered by `time`. The delay until a packet is
/// counted and the difference of clocks are together at most `skew`.
pub(super) fn around(reports: &VecDeque<Report>, time: u64, skew: u64) -> ReportsAround<'_> {
    let until = time.saturating_sub(skew);
    let after = time.saturating_add(skew);
    let mut reports = reports.iter();
    ReportsAround {
        before: reports
            .clone()
            .rfind(|report| report.summary.stamp <= until),
        after: reports.find(|report| report.summary.stamp >= after),
    }
}

/// A run's last report before a time, and its first report after this time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportsAround<'a> {
    pub(super) before: Option<&'a Report>,
    pub(super) after: Option<&'a Report>,
}

impl ReportsAround<'_> {
    /// Whether the node certainly saw no packet of a bucket between the two reports.
    pub(super) fn is_still(&self, bucket: usize) -> bool {
        self.after.is_some() && self.seen(bucket).is_exact()
    }

    pub(super) fn seen(&self, bucket: usize) -> Span {
        self.span(|report| report.seen[bucket])
    }

    pub(super) fn captured(&self, bucket: usize) -> Span {
        self.span(|report| report.captured[bucket])
    }

    fn span(&self, count: impl Fn(&Report) -> u64) -> Span {
        let least = self.before.map_or(0, |report| signed(count(report)));
        let most = self.after.map_or(least, |report| signed(count(report)));
        Span { least, most }
    }
}
