//! Evaluates buckets whose traffic has stopped, because their counts are certain.

use fanpcap_buckets::layout::BUCKETS;

use super::balance::{ObserverReports, RunCounts};
use super::counter_run::{CounterRun, Spans};
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
    /// For each run, the packets that it had captured by the end, and whether its node may have the
    /// bucket from then on.
    runs: Vec<(Span, bool)>,
}

impl Ledger {
    /// For each bucket without traffic, gives all observers the same number of offered packets. If
    /// some observers were silent then, and certainly did not see more packets than the others, the
    /// others get this number.
    pub(super) fn rest(&mut self) {
        let observers = self.observers(self.time);
        let resting = |bucket: usize| {
            let still = |(_, around): &ObserverReports<'_>| around.is_still(bucket);
            let offered = self.offered_now(&observers, bucket);
            (!observers.is_empty() && observers.iter().all(still)).then_some(offered)
        };
        let resting: Vec<Option<Span>> = (0..BUCKETS).map(resting).collect();
        let known = |bucket: usize| resting[bucket].or_else(|| self.certain(&observers, bucket));
        let known: Vec<Option<Span>> = (0..BUCKETS).map(known).collect();
        self.note_turns(&resting);
        let follows_unknown = |run: &CounterRun| run.follows_unknown;
        if !self.settings.analyzed && self.runs.iter().any(follows_unknown) {
            // If a node lacks packets, its buckets become uncertain. Which buckets these are is
            // unknown until the topology is known.
            return;
        }
        self.close(&resting);
        let time = self.time;
        for run in &mut self.runs {
            let around = run.around(time, self.settings.skew);
            let seen: Box<Spans> = Box::new(std::array::from_fn(|bucket| around.seen(bucket)));
            let has_after = around.after.is_some();
            let Some(before) = run.before.as_mut().filter(|_| run.end.is_none()) else {
                continue;
            };
            for (bucket, offered) in known.iter().enumerate() {
                let is_resting = resting[bucket].is_some();
                let is_still = has_after && seen[bucket].is_exact();
                if let Some(offered) = offered.filter(|_| is_resting || is_still) {
                    let own = before[bucket] + seen[bucket];
                    if !is_resting && own != offered && run.had[bucket] {
                        // `close` does the same for the buckets of `resting`.
                        self.intervals[bucket].gone.lack();
                    }
                    let lacks = offered.least.saturating_sub(own.most).max(0);
                    run.mirror = run.mirror.saturating_add(lacks);
                    run.port.rest(bucket, lacks);
                    before[bucket] = offered - seen[bucket];
                }
            }
        }
        for (bucket, offered) in resting.into_iter().enumerate() {
            if let Some(offered) = offered {
                self.floor[bucket] = offered;
            }
        }
    }

    /// The number of a bucket's offered packets, if some observers saw no packet of it at this time,
    /// one of them saw all packets, and the others certainly did not see more.
    fn certain(&self, observers: &[ObserverReports<'_>], bucket: usize) -> Option<Span> {
        let mut still = observers
            .iter()
            .filter(|(_, around)| around.is_still(bucket))
            .peekable();
        still.peek()?;
        let offered = self.offered(observers, bucket);
        let shows =
            |(run, around): &ObserverReports<'_>| run.offered(around, bucket) == Some(offered);
        let is_known = offered.is_exact() && still.any(shows);
        is_known.then(|| self.offered_now(observers, bucket))
    }

    /// Ends the interval of each bucket without traffic, if all counts of the bucket are known.
    /// While a node is silent, or counts as dead and may return, its counts are unknown, because
    /// they may come later.
    fn close(&mut self, resting: &[Option<Span>]) {
        if self.settings.analyzed {
            return;
        }
        // A node that is out of turn assigns packets of all buckets wrongly.
        let may_close = !self.in_turn || resting.iter().all(Option::is_some);
        let shares = self.shares();
        let has: Vec<Option<Box<Flags>>> = shares.iter().map(|share| self.has(share)).collect();
        let (mut closing, mut lacking) = (Vec::new(), Vec::new());
        for (bucket, offered) in resting.iter().enumerate() {
            let Some(offered) = *offered else {
                continue;
            };
            let parts = self.parts(bucket, offered, &shares);
            let is_known = |share: &RunCounts<'_>| {
                share.is_known(bucket) && !self.may_return(share.run, bucket)
            };
            let is_whole = !self.awaits(bucket) && shares.iter().all(is_known);
            if may_close && is_whole {
                let since = offered.since(self.intervals[bucket].offered);
                let has = has
                    .iter()
                    .map(|has| has.as_ref().is_none_or(|has| has[bucket]));
                let runs = shares.iter().zip(has);
                closing.push(IntervalEnd {
                    bucket,
                    offered,
                    outcome: parts.outcome(since),
                    runs: runs
                        .map(|(share, has)| (share.captured[bucket], has))
                        .collect(),
                });
            } else if parts.is_partial() {
                lacking.push(bucket);
            }
        }
        closing.into_iter().for_each(|end| self.begin_interval(end));
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
    fn begin_interval(&mut self, end: IntervalEnd) {
        let bucket = end.bucket;
        for (run, (captured, has)) in self.runs.iter_mut().zip(end.runs) {
            run.had[bucket] = has;
            run.captured_before[bucket] = captured;
            run.may_double[bucket] = 0;
            run.may_double_dead[bucket] = 0;
        }
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
