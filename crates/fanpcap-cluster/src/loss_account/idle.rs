//! Evaluates buckets whose traffic has stopped, because their counts are certain.

use fanpcap_buckets::layout::BUCKETS;

use super::balance::RunCounts;
use super::counter_run::{CounterRun, Spans, around};
use super::interval::Interval;
use super::ledger::Ledger;
use super::ownership::Flags;
use super::span::Span;

/// The end of a bucket's interval.
struct IntervalEnd {
    bucket: usize,
    /// The packets offered until the end.
    offered: Span,
    /// The interval's packets that were doubled, and those that were lost.
    outcome: (Span, Span),
}

impl Ledger {
    /// For each bucket without traffic, gives all observers the same number of offered packets. If
    /// a silent node did not see more packets than the others, the others get this number.
    /// `offered` are the packets that were offered until now.
    pub(super) fn rest(&mut self, offered: &[Span]) {
        let observers = self.observers(self.time);
        let mut rests = vec![!observers.is_empty(); BUCKETS];
        // Whether an observer that saw no packet of the bucket at this time has seen all packets.
        let mut shown = vec![false; BUCKETS];
        for (run, around) in &observers {
            for (bucket, offered) in offered.iter().enumerate() {
                if !around.is_still(bucket) {
                    rests[bucket] = false;
                } else if offered.is_exact() {
                    shown[bucket] |= run.offered(around, bucket) == Some(*offered);
                }
            }
        }
        self.note_turns(offered, &rests);
        let follows_unknown = |run: &CounterRun| run.follows_unknown;
        if !self.settings.analyzed && self.runs.iter().any(follows_unknown) {
            // If a node lacks packets, its buckets become uncertain. Which buckets these are is
            // unknown until the topology is known.
            return;
        }
        self.close(offered, &rests);
        for run in &mut self.runs {
            let around = around(&run.reports, self.time, self.settings.skew);
            let Some(before) = run.before.as_mut().filter(|_| around.after.is_some()) else {
                continue;
            };
            for (bucket, &offered) in offered.iter().enumerate() {
                if !(rests[bucket] || shown[bucket] && around.is_still(bucket)) {
                    continue;
                }
                let seen = around.seen(bucket);
                let own = before[bucket] + seen;
                if !rests[bucket] && own != offered && run.had[bucket] {
                    // `close` does the same for the buckets without traffic.
                    self.intervals[bucket].gone.lack();
                }
                let lacks = offered.least.saturating_sub(own.most).max(0);
                run.mirror = run.mirror.saturating_add(lacks);
                run.port.rest(bucket, lacks);
                before[bucket] = offered - seen;
            }
        }
        for (bucket, _) in rests.iter().enumerate().filter(|(_, rests)| **rests) {
            self.floor[bucket] = offered[bucket];
        }
    }

    /// Ends the interval of each bucket without traffic, if all counts of the bucket are known.
    /// While a node is silent, or counts as dead and may return, its counts are unknown, because
    /// they may come later.
    fn close(&mut self, offered: &[Span], rests: &[bool]) {
        if self.settings.analyzed || !rests.contains(&true) {
            return;
        }
        // A node that is out of turn assigns packets of all buckets wrongly.
        let may_close = !self.in_turn || !rests.contains(&false);
        let shares = self.shares();
        let has: Vec<Option<Box<Flags>>> = shares.iter().map(|share| self.has(share)).collect();
        let (mut closing, mut lacking) = (Vec::new(), Vec::new());
        for (bucket, _) in rests.iter().enumerate().filter(|(_, rests)| **rests) {
            let offered = offered[bucket];
            let parts = self.parts(bucket, offered, &shares);
            let is_known = |share: &RunCounts<'_>| {
                share.is_known(bucket) && !self.may_return(share.run, bucket)
            };
            let is_whole = !self.awaits(bucket) && shares.iter().all(is_known);
            if may_close && is_whole {
                let since = offered.since(self.intervals[bucket].offered);
                closing.push(IntervalEnd {
                    bucket,
                    offered,
                    outcome: parts.outcome(since),
                });
            } else if parts.is_partial {
                lacking.push(bucket);
            }
        }
        let shares = shares.into_iter().map(|share| share.captured);
        let shares: Vec<_> = shares.zip(has).collect();
        for (run, (captured, has)) in self.runs.iter_mut().zip(&shares) {
            closing
                .iter()
                .for_each(|end| run.begin_interval(end.bucket, captured, has.as_deref()));
        }
        closing.iter().for_each(|end| self.begin_interval(end));
        for bucket in lacking {
            self.intervals[bucket].gone.lack();
        }
    }

    /// The buckets that a run's node may have at the account's time or later; `None` for any.
    fn has(&self, share: &RunCounts<'_>) -> Option<Box<Flags>> {
        let report = share.around.before?;
        self.ownership
            .since(share.run.node, report.summary.revision)
    }

    /// Adds an interval's outcome to the sums, and begins the next one.
    fn begin_interval(&mut self, end: &IntervalEnd) {
        let bucket = end.bucket;
        self.forget_never_reported(bucket);
        let closed = &mut self.closed[bucket];
        *closed = (closed.0 + end.outcome.0, closed.1 + end.outcome.1);
        self.intervals[bucket] = Interval {
            since: self.time,
            offered: end.offered,
            ..Interval::default()
        };
    }
}

impl CounterRun {
    /// Begins a bucket's next interval. The run has captured these packets until now, and its node
    /// may have the buckets `has` from now on; `None` stands for any.
    fn begin_interval(&mut self, bucket: usize, captured: &Spans, has: Option<&Flags>) {
        self.had[bucket] = has.is_none_or(|has| has[bucket]);
        self.captured_before[bucket] = captured[bucket];
        self.may_double[bucket] = 0;
        self.may_double_dead[bucket] = 0;
    }
}

impl RunCounts<'_> {
    /// Whether the number of packets that the run captured of a bucket does not change any more.
    fn is_known(&self, bucket: usize) -> bool {
        let run = self.run;
        let counts = match (run.is_live(), self.around.after) {
            (true, None) => return false,
            (true, _) => self.around.captured(bucket),
            (false, _) => self.captured[bucket].since(run.captured_before[bucket]),
        };
        run.booked && counts.is_exact()
    }
}
