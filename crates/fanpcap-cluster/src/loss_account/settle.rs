//! Evaluates the reports: which nodes are valid observers, and which numbers are certain.

use fanpcap_buckets::layout::BUCKETS;

use super::counter_run::{CounterRun, RunAge, Spans, zeros};
use super::history::note;
use super::judge::judge;
use super::ledger::Ledger;
use super::span::{Span, signed, sum};
use crate::identity::Revision;
use crate::topology::NODES;

/// The longest measured time, in nanoseconds, that a packet waited for its node's CPU.
const WAIT: u64 = 100_000_000;

/// How many nanoseconds after a report its topology may still arrive.
const UNKNOWN: u64 = 5_000_000_000;

/// For this time, in nanoseconds, a node that counts as dead may return with the same counters.
const PATIENCE: u64 = 120_000_000_000;

/// If reports of a longer time come at once, they are evaluated for times that are so many
/// nanoseconds apart.
const STEP: u64 = 1_000_000_000;

/// The maximum number of these times. Older reports are not kept.
const STEPS: u64 = 20;

impl Ledger {
    /// Evaluates the reports that have come. Call it about once a second.
    pub fn settle(&mut self) {
        let skew = self.skew();
        let newest = |run: &CounterRun| run.last().summary.stamp.saturating_sub(skew);
        let live = || self.runs.iter().filter(|run| run.is_live());
        let Some(time) = live().map(newest).min() else {
            return;
        };
        if time < self.time && skew > self.settings.skew {
            // The skew has grown, so the reports are complete only up to a time before `self.time`.
            return;
        }
        self.settings.skew = skew;
        let time = self.time.max(time);
        // While a node was silent, `self.time` stood still, and traffic may have paused.
        if self.time > 0 {
            self.time = self.time.max(time.saturating_sub(STEPS * STEP));
            while time - self.time > STEP + STEP / 2 {
                self.time += STEP;
                self.evaluate();
            }
        }
        self.time = time;
        self.evaluate();
    }

    /// Evaluates the reports up to `self.time`.
    fn evaluate(&mut self) {
        self.judge();
        self.extend_ends();
        self.look_for_unknown();
        self.align();
        self.compare();
        self.reach_ends();
        let offered = self.offered_now(self.time);
        self.judge_ports(&offered);
        for run in self.runs.iter_mut().filter(|run| run.end.is_none()) {
            note(&mut self.history, run, self.time);
        }
        self.rest(&offered);
        self.give_up();
    }

    /// Looks for reports whose topology is unknown, or may be of another branch of a fork. An
    /// unknown topology may become known a little later. In a fork packets may be lost although all
    /// nodes saw them, until each node has left the other branch.
    fn look_for_unknown(&mut self) {
        let old = self.time.saturating_sub(UNKNOWN);
        let mut astray = 0;
        for run in &mut self.runs {
            // The topologies of a run that ended earlier may be forgotten by now.
            let is_reached = run.end.as_ref().is_some_and(|end| end.is_reached);
            if is_reached && run.unknown_since.is_none() {
                continue;
            }
            let is_unknown = |revision: &Revision| !self.ownership.knows(*revision);
            let summaries = run.reports.iter().map(|report| &report.summary);
            let unknown = summaries.map(|summary| (summary.revision, summary.stamp));
            let first = unknown.clone().find(|(revision, _)| is_unknown(revision));
            // A node may report so often that its oldest kept report is always young.
            let since = run
                .unknown_since
                .filter(|(revision, _)| is_unknown(revision));
            run.unknown_since = first.map(|first| since.unwrap_or(first));
            run.follows_unknown = run.unknown_since.is_some_and(|(_, since)| since >= old);
            if run.unknown_since.is_some() && !run.follows_unknown {
                run.had.fill(true);
            }
            let is_astray = |revision: Revision| {
                let is_awaited = run.follows_unknown && is_unknown(&revision);
                self.ownership.may_be_astray(revision) && !is_awaited
            };
            let revisions = unknown.map(|(revision, _)| revision);
            if let Some(last) = revisions.rev().position(is_astray) {
                // The report after the last one that is astray.
                let next = last.checked_sub(1).map(|back| run.reports.len() - 1 - back);
                let ended = run.end.as_ref().map_or(u64::MAX, |end| end.at);
                astray = astray.max(next.map_or(ended, |at| run.reports[at].summary.stamp));
            }
        }
        let until = astray.saturating_add(self.settings.skew);
        for interval in self.intervals.iter_mut() {
            if astray > 0 && interval.since <= until {
                interval.gone.lack();
            }
        }
    }

    /// How far nodes' clocks may differ. If all live nodes see beacons, the beacons show this.
    /// Otherwise the settings give the limit.
    fn skew(&self) -> u64 {
        let live = || self.runs.iter().filter(|run| run.is_live());
        let beacon = |run: &CounterRun| run.last().summary.beacon.sequence;
        let newest = live().map(beacon).max().unwrap_or(0);
        let all = newest > 0 && live().all(|run| beacon(run) + 3 > newest);
        match self.apart().filter(|_| all) {
            Some(apart) => apart.saturating_mul(2).saturating_add(WAIT),
            None => self.without_beacons,
        }
    }

    /// Computes each live node's verdict from the packets after all live nodes' first reports.
    fn judge(&mut self) {
        let skew = self.settings.skew;
        let live: Vec<&CounterRun> = self.runs.iter().filter(|run| run.is_live()).collect();
        let oldest = live.iter().map(|run| run.reports[0].summary.stamp).max();
        let from = oldest.unwrap_or(0).saturating_add(skew);
        if from >= self.time {
            return;
        }
        let around = |time| {
            live.iter()
                .map(|run| run.around(time, skew))
                .collect::<Vec<_>>()
        };
        let verdicts = judge(&live, &around(from), &around(self.time));
        let stamp = self.time.saturating_add(skew);
        let runs = self.runs.iter_mut().filter(|run| run.is_live());
        for (run, verdict) in runs.zip(verdicts) {
            let Some(verdict) = verdict else {
                continue;
            };
            (run.verdict, run.judged) = (verdict, self.time);
            if !verdict.is_believed() {
                run.before = None;
                run.from = stamp;
                run.port.begin_anew();
            }
        }
    }

    /// Makes observers of the runs whose counts the account may use, the oldest run first.
    fn align(&mut self) {
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by_key(|&at| self.runs[at].since);
        for at in order {
            let run = &self.runs[at];
            if run.before.is_some() || !run.verdict.is_believed() {
                continue;
            }
            if !self.begun {
                self.begin_with(at);
            } else if let Some((before, unbooked)) = self.before(run) {
                let run = &mut self.runs[at];
                run.before = Some(before);
                // If the run was an observer earlier, `unbooked` is already known.
                if !run.booked && run.age != RunAge::New {
                    // The packets that the run captured between the ledger's begin and its first
                    // report were not compared with other nodes' packets.
                    for (doubles, span) in run.may_double.iter_mut().zip(unbooked.iter()) {
                        let captured = span.most.saturating_sub(span.least).unsigned_abs();
                        *doubles = doubles.saturating_add(captured);
                    }
                    run.unbooked = unbooked;
                    run.note_closed(&self.intervals);
                }
                run.booked = true;
            }
        }
    }

    /// Begins the ledger with the run `at`, the first observer. The ledger leaves out packets that
    /// the run counted before the ledger began.
    fn begin_with(&mut self, at: usize) {
        let run = &mut self.runs[at];
        if run.age == RunAge::New {
            run.before = Some(zeros());
        } else {
            let first = &run.reports[0];
            self.settings.begin = first.summary.stamp;
            let minus = |count: u64| Span::exactly(-signed(count));
            run.before = Some(Box::new(first.seen.map(minus)));
            *run.unbooked = first.captured.map(minus);
        }
        run.booked = true;
        self.begun = true;
    }

    /// Returns two numbers for each bucket: how many packets were offered before `run`'s counts
    /// began, and how many packets `run` captured before the ledger began (as a negative number).
    /// `None` until all nodes' reports reach the time at which `run`'s counts begin.
    fn before(&self, run: &CounterRun) -> Option<(Box<Spans>, Box<Spans>)> {
        let (skew, begin) = (self.settings.skew, self.settings.begin);
        let fresh = run.from == run.since && run.age == RunAge::New;
        let time = if fresh {
            run.since
        } else {
            let first = run
                .reports
                .iter()
                .find(|report| report.summary.stamp >= run.from)?;
            first.summary.stamp.max(begin).saturating_add(skew)
        };
        if time > self.time {
            return None;
        }
        let around = run.around(time, skew);
        let booked = run.around(begin, skew);
        let offered = self.offered(time);
        let before = |bucket: usize| {
            let seen = if fresh {
                Span::default()
            } else {
                around.seen(bucket)
            };
            offered[bucket] - seen
        };
        // For each bucket, the packets that `run` captured before the ledger began, as a negative
        // number.
        let first = &run.reports[0];
        let unbooked = |bucket: usize| {
            let come = offered[bucket].most.max(0);
            if run.age == RunAge::Resumed {
                let Span { least, most } = run.unbooked[bucket];
                let come = come.saturating_sub(self.intervals[bucket].offered.least);
                let most = most.min(least.saturating_add(come.max(0)));
                return Span { least, most };
            }
            let mut booked = booked.captured(bucket);
            let least = signed(first.captured[bucket]).saturating_sub(come);
            booked.least = booked.least.max(least);
            Span::default() - booked
        };
        Some((
            Box::new(std::array::from_fn(before)),
            Box::new(std::array::from_fn(unbooked)),
        ))
    }

    /// Judges each live observer's port from the offered packets that the observer did not see.
    fn judge_ports(&mut self, offered: &[Span]) {
        let (time, skew) = (self.time, self.settings.skew);
        let total = sum(offered.iter().map(|span| span.least));
        let observers = self.runs.iter_mut().filter(|run| run.before.is_some());
        for run in observers.filter(|run| run.is_live()) {
            let around = run.around(time, skew);
            let seen = |bucket: usize| run.offered(&around, bucket).unwrap_or_default();
            let lacks = (0..BUCKETS).map(|bucket| offered[bucket] - seen(bucket));
            let lacks: Vec<Span> = lacks.collect();
            run.port.judge(time, &lacks, run.mirror, total);
        }
    }

    /// Raises `floor` if an ended run's counts show more offered packets. Completes the run when
    /// all live nodes' reports reach its end: notes how many packets the run captured.
    fn reach_ends(&mut self) {
        for at in 0..self.runs.len() {
            let run = &self.runs[at];
            let Some(end) = run.end.as_ref().filter(|end| !end.is_reached) else {
                continue;
            };
            let last = run.last();
            let is_offered = last.summary.stamp.saturating_add(self.settings.skew) <= self.time;
            let is_over = end.at <= self.time;
            if let Some(before) = run.before.as_ref().filter(|_| is_offered || is_over) {
                for (bucket, floor) in self.floor.iter_mut().enumerate() {
                    let seen = before[bucket]
                        .least
                        .saturating_add(signed(last.seen[bucket]));
                    floor.least = floor.least.max(seen);
                    floor.most = floor.most.max(floor.least);
                }
            }
            // The buckets of a run whose topology is unknown may become known.
            let is_awaited = run.follows_unknown && !self.settings.analyzed;
            if end.goes_on || is_awaited || !is_over {
                continue;
            }
            let captured = self.captured_until_end(run, end);
            let unreported = self.unreported(run, end);
            if let Some(end) = self.runs[at].end.as_mut() {
                (end.captured, end.is_reached) = (Some(captured), true);
                end.unreported = Some(unreported);
            }
        }
    }

    /// Whether the reports of a dead node may still come, with packets of the bucket.
    pub(super) fn may_return(&self, run: &CounterRun, bucket: usize) -> bool {
        run.end.as_ref().is_some_and(|end| {
            let is_young = end.at.saturating_add(PATIENCE) > self.time;
            end.owned[bucket] && is_young && !self.has_newer(run)
        })
    }

    /// Removes ended runs that can't continue, and keeps their counts only in sums.
    fn give_up(&mut self) {
        let is_over = |run: &CounterRun| {
            let end = run.end.as_ref().filter(|end| end.is_reached);
            end.is_some_and(|end| {
                let has_newer = self.has_newer(run) && self.is_compared(end);
                end.at.saturating_add(PATIENCE) <= self.time || has_newer
            })
        };
        let over: Vec<bool> = self.runs.iter().map(is_over).collect();
        if !over.contains(&true) {
            return;
        }
        let offered = self.offered_now(self.time);
        let shares = self.shares().into_iter().zip(&over);
        let gone: Vec<_> = shares
            .filter(|(_, is_over)| **is_over)
            .map(|(share, _)| {
                let part = |bucket| self.part(&share, bucket, offered[bucket]);
                let parts: Vec<_> = (0..BUCKETS).map(part).collect();
                (share.captured, parts)
            })
            .collect();
        let runs = std::mem::take(&mut self.runs).into_iter().zip(over);
        let (over, left): (Vec<_>, Vec<_>) = runs.partition(|(_, is_over)| *is_over);
        self.runs = left.into_iter().map(|(run, _)| run).collect();
        for ((run, _), (captured, parts)) in over.iter().zip(gone) {
            self.over = self.over.max(run.end.as_ref().map_or(0, |end| end.at));
            for (bucket, part) in parts.iter().enumerate() {
                self.intervals[bucket].gone.add(part);
                self.past[bucket] += captured[bucket];
            }
            self.past_ring = self.past_ring.saturating_add(run.last().summary.ring);
            if self.given_up.len() == NODES {
                self.given_up.pop_front();
            }
            self.given_up.push_back((run.node, run.boot, run.since));
        }
    }
}
