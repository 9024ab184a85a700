//! Computes how many packets were offered, captured, doubled and lost.

use std::collections::BTreeMap;

use fanpcap_buckets::layout::BUCKETS;

use super::account::{Account, BucketAccount, NodeAccount};
use super::counter_run::{CounterRun, CounterRunEnd, ReportsAround, Spans};
use super::interval::{RunPart, RunParts};
use super::ledger::Ledger;
use super::report::{Counts, Report, Summary};
use super::span::{Span, signed};

/// An observer, with its reports around a time.
pub(super) type ObserverReports<'a> = (&'a CounterRun, ReportsAround<'a>);

impl Ledger {
    /// The observers with their reports around a time: live runs, and runs that ended later.
    pub(super) fn observers(&self, time: u64) -> Vec<ObserverReports<'_>> {
        let observers = self.runs.iter().filter(|run| run.before.is_some());
        let around = |run| (run, CounterRun::around(run, time, self.settings.skew));
        let is_one = |(run, around): &ObserverReports<'_>| run.is_live() || around.after.is_some();
        observers.map(around).filter(is_one).collect()
    }

    /// For each bucket, the packets that were offered until `time`, according to the observers of
    /// that time, or to ended runs if there are no such observers.
    pub(super) fn offered(&self, time: u64) -> Vec<Span> {
        let observers = self.observers(time);
        if observers.is_empty() {
            return self.floor.to_vec();
        }
        let mut shown = vec![Shown::default(); BUCKETS];
        let mut amid_traffic = Vec::new();
        for (run, around) in &observers {
            let stamp = around.after.map(|report| report.summary.stamp);
            for (bucket, shown) in shown.iter_mut().enumerate() {
                let span = run.offered(around, bucket).unwrap_or_default();
                shown.least = shown.least.max(Some(span.least));
                if run.is_exact(bucket) {
                    shown.most = shown.most.max(Some(span.most));
                    shown.stamp = stamp.into_iter().chain(shown.stamp).min();
                } else {
                    amid_traffic.push((*run, bucket, span.most));
                }
            }
        }
        let mut offered: Vec<Option<i64>> = shown.iter().map(|shown| shown.most).collect();
        for (run, bucket, most) in amid_traffic {
            if self.shows_more(run, bucket, shown[bucket]) {
                offered[bucket] = offered[bucket].max(Some(most));
            }
        }
        let span = |(shown, most): (&Shown, Option<i64>)| {
            let least = shown.least.unwrap_or(0);
            let most = most.map_or(least, |most| most.max(least));
            Span { least, most }
        };
        shown.iter().zip(offered).map(span).collect()
    }

    /// Whether an observer that began amid traffic certainly saw more packets of a bucket than all
    /// observers with exact counts. If there are no others, its count is used anyway.
    fn shows_more(&self, run: &CounterRun, bucket: usize, shown: Shown) -> bool {
        // The observers with exact counts have counted all packets of other observers' reports with
        // stamps of this time or earlier.
        let skews = self.settings.skew.saturating_mul(2);
        let until = shown.stamp.map_or(0, |stamp| stamp.saturating_sub(skews));
        let least = || {
            let before = run.before.as_ref()?[bucket].least;
            Some(before.saturating_add(signed(run.report_until(until)?.seen[bucket])))
        };
        shown
            .most
            .is_none_or(|most| least().is_some_and(|least| least > most))
    }

    /// For each bucket, the packets that were offered until `time`, according to the observers of
    /// that time and to ended runs.
    pub(super) fn offered_now(&self, time: u64) -> Vec<Span> {
        let mut offered = self.offered(time);
        for (offered, floor) in offered.iter_mut().zip(self.floor.iter()) {
            offered.least = offered.least.max(floor.least);
            offered.most = offered.most.max(floor.least);
        }
        offered
    }

    /// How many packets of each bucket a run captured.
    pub(super) fn captured(&self, run: &CounterRun) -> Box<Spans> {
        let around = run.around(self.time, self.settings.skew);
        let Some(end) = &run.end else {
            let captured = |bucket: usize| run.unbooked[bucket] + around.captured(bucket);
            return Box::new(std::array::from_fn(captured));
        };
        let ended = self.captured_until_end(run, end);
        let captured = |bucket: usize| {
            let mut captured = ended[bucket];
            if self.time < end.at {
                captured.least = captured.least.min(around.captured(bucket).least);
            }
            run.unbooked[bucket] + captured
        };
        Box::new(std::array::from_fn(captured))
    }

    /// How many packets of each bucket an ended run captured in total.
    pub(super) fn captured_until_end(&self, run: &CounterRun, end: &CounterRunEnd) -> Box<Spans> {
        if let Some(captured) = &end.captured {
            return captured.clone();
        }
        let last = run.last();
        let known = self.known(run);
        let offered = self.offered_now(end.at.min(self.time));
        let captured = |bucket: usize| {
            let reported = signed(last.captured[bucket]);
            let unseen = match end.owned[bucket] {
                true => beyond(known[bucket], offered[bucket]),
                false => 0,
            };
            Span {
                least: reported,
                most: reported.saturating_add(unseen),
            }
        };
        Box::new(std::array::from_fn(captured))
    }

    /// For each bucket, an upper limit of the packets that an ended run and a run that had ended
    /// earlier both captured after their last reports.
    pub(super) fn unreported(&self, run: &CounterRun, end: &CounterRunEnd) -> Box<Counts> {
        if let Some(unreported) = &end.unreported {
            return unreported.clone();
        }
        let mut unreported = Box::new([0; BUCKETS]);
        let stamp = run.last().summary.stamp;
        let known = self.known(run);
        let ends = self.runs.iter().filter(|other| other.node != run.node);
        let ends = ends.filter_map(|other| Some((other.node, other.end.as_ref()?)));
        let earlier = ends.filter(|(node, other)| (other.at, *node) < (end.at, run.node));
        let earlier = earlier.map(|(_, other)| (other.at, Some(&other.owned)));
        // The buckets of given-up runs are unknown.
        for (at, owned) in earlier.chain([(self.over.min(end.at), None)]) {
            if at.saturating_add(self.settings.skew) < stamp {
                continue;
            }
            let offered = self.offered_now(at.min(self.time));
            for (bucket, unreported) in unreported.iter_mut().enumerate() {
                if end.owned[bucket] && owned.is_none_or(|owned| owned[bucket]) {
                    let packets = beyond(known[bucket], offered[bucket]);
                    *unreported = (*unreported).max(packets.unsigned_abs());
                }
            }
        }
        unreported
    }

    /// How many packets of each bucket were certainly offered by the last report of an ended run.
    pub(super) fn known(&self, run: &CounterRun) -> Box<[i64; BUCKETS]> {
        // Later the observers have forgotten their reports of that time.
        if let Some(known) = run.end.as_ref().and_then(|end| end.known.as_ref()) {
            return known.clone();
        }
        let last = run.last();
        let observers = self.observers(last.summary.stamp);
        let known = |bucket: usize| {
            let before = run.before.as_ref().map_or(0, |before| before[bucket].least);
            let known = before.saturating_add(signed(last.seen[bucket]));
            // The run's port may have lost packets before its last report.
            let offered = |(run, around): &ObserverReports<'_>| run.offered(around, bucket);
            let others = observers.iter().filter_map(offered);
            let least = others.map(|span| span.least).min();
            known.max(least.unwrap_or(i64::MIN))
        };
        Box::new(std::array::from_fn(known))
    }

    /// What became of all packets until `self.time`, up to which every live node has reported.
    pub fn account(&self) -> Account {
        let shares = self.shares();
        let mut account = Account {
            nodes: self.nodes(),
            since: self.settings.begin,
            time: self.time,
            apart: self.apart(),
            ring: self.sum(self.past_ring, |summary| summary.ring),
            history: self.history.clone(),
            ..Account::default()
        };
        for (bucket, offered) in self.offered_now(self.time).into_iter().enumerate() {
            let row = self.bucket(bucket, offered, &shares);
            account.total.offered += row.offered;
            account.total.captured += row.captured;
            account.total.doubles += row.doubles;
            account.total.kept += row.kept;
            account.total.refused += row.refused;
            account.total.lost += row.lost;
            account.buckets.push(row);
        }
        account
    }

    /// The sum over the last reports of all runs, plus `past` for the runs that were given up.
    fn sum(&self, past: u64, count: impl Fn(&Summary) -> u64) -> u64 {
        let runs = self.runs.iter().map(|run| count(&run.last().summary));
        runs.fold(past, u64::saturating_add)
    }

    /// For each run, its counts up to the time of the account.
    pub(super) fn shares(&self) -> Vec<RunCounts<'_>> {
        let share = |run| self.share(run);
        self.runs.iter().map(share).collect()
    }

    fn share<'a>(&'a self, run: &'a CounterRun) -> RunCounts<'a> {
        let around = run.around(self.time, self.settings.skew);
        RunCounts {
            run,
            captured: self.captured(run),
            around,
            newest: around.after.unwrap_or(run.last()),
            compared: run.compared(),
            unreported: run.end.as_ref().map(|end| self.unreported(run, end)),
        }
    }

    fn bucket(&self, bucket: usize, offered: Span, shares: &[RunCounts<'_>]) -> BucketAccount {
        let mut all = self.past[bucket];
        shares
            .iter()
            .for_each(|share| all += share.captured[bucket]);
        let refused = Span::exactly(signed(self.refused[bucket]));
        let mut row = BucketAccount {
            offered,
            captured: all,
            refused,
            ..BucketAccount::default()
        };
        if self.settings.analyzed {
            row.doubles = Span::exactly(signed(self.doubles[bucket]));
            let taken = all - row.doubles - refused;
            row.lost = (offered - taken).not_negative();
            row.kept = (taken - offered).not_negative();
        } else {
            let interval = offered.since(self.intervals[bucket].offered);
            let others = self.parts_never_reported(bucket, interval);
            row.captured = others.fold(all, |sum, part| sum + part.captured);
            let (doubles, lost) = self.parts(bucket, offered, shares).outcome(interval);
            let before = self.closed[bucket];
            (row.doubles, row.lost) = (before.0 + doubles, before.1 + lost);
        }
        row
    }

    /// The packets of all runs in a bucket's interval.
    pub(super) fn parts(&self, bucket: usize, offered: Span, shares: &[RunCounts<'_>]) -> RunParts {
        let mut parts = self.intervals[bucket].gone;
        for share in shares {
            parts.add(&self.part(share, bucket, offered));
        }
        let interval = offered.since(self.intervals[bucket].offered);
        self.parts_never_reported(bucket, interval)
            .for_each(|part| parts.add(&part));
        parts
    }

    /// The packets of a run in a bucket's interval.
    pub(super) fn part(&self, share: &RunCounts<'_>, bucket: usize, offered: Span) -> RunPart {
        let run = share.run;
        let since = self.intervals[bucket].since;
        let is_over = run.end.as_ref().is_some_and(|end| end.at <= since);
        RunPart {
            had: !is_over && run.may_have_had(bucket),
            is_out_of_turn: self.is_out_of_turn(run, bucket),
            ..share.part(bucket, offered)
        }
    }

    fn nodes(&self) -> Vec<NodeAccount> {
        let live = self.runs.iter().filter(|run| run.is_live());
        live.map(|run| NodeAccount {
            node: run.node,
            verdict: run.named(self.time),
            mirror: run.mirror,
            ring: run.last().summary.ring,
            seen: run.last().seen.iter().sum(),
            captured: run.last().captured.iter().sum(),
        })
        .collect()
    }

    /// The longest time between two nodes' sightings of the same beacon.
    pub(super) fn apart(&self) -> Option<u64> {
        let live = self.runs.iter().filter(|run| run.is_live());
        let mut spans = BTreeMap::new();
        for (at, run) in live.enumerate() {
            for beacon in run.reports.iter().map(|report| report.summary.beacon) {
                let seen = beacon.seen;
                let span = spans.entry(beacon.sequence).or_insert((at, seen, None));
                if span.0 != at {
                    let apart: &mut Option<u64> = &mut span.2;
                    *apart = (*apart).max(Some(span.1.abs_diff(seen)));
                }
            }
        }
        spans.remove(&0);
        spans.into_values().filter_map(|(_, _, apart)| apart).max()
    }
}

/// What the observers show of a bucket.
#[derive(Clone, Copy, Default)]
struct Shown {
    /// The lower limit of the offered packets.
    least: Option<i64>,
    /// The upper limit, and the earliest of the first reports after the time: both only of the
    /// observers with exact counts.
    most: Option<i64>,
    stamp: Option<u64>,
}

/// Upper limit of the packets that were offered after the first `known` packets.
fn beyond(known: i64, offered: Span) -> i64 {
    offered.most.saturating_sub(known).max(0)
}

/// A run's counts up to the time of the account.
#[derive(Debug)]
pub(super) struct RunCounts<'a> {
    pub(super) run: &'a CounterRun,
    /// How many packets of each bucket the run captured.
    pub(super) captured: Box<Spans>,
    pub(super) around: ReportsAround<'a>,
    /// The first report after the time of the account; without such a report, the last report.
    pub(super) newest: &'a Report,
    /// The newest report that was compared with the other nodes' reports.
    compared: Option<&'a Report>,
    /// If the run has ended, an upper limit of the packets that it and a run that had ended earlier
    /// both captured after their last reports.
    unreported: Option<Box<Counts>>,
}

impl RunCounts<'_> {
    /// The packets of the run in a bucket's interval.
    pub(super) fn part(&self, bucket: usize, offered: Span) -> RunPart {
        let run = self.run;
        let compared = self.compared.map_or(0, |report| report.captured[bucket]);
        let newer = self.newest.captured[bucket].saturating_sub(compared);
        let unreported = self.unreported.as_ref().map_or(0, |it| it[bucket]);
        RunPart {
            captured: self.captured[bucket].since(run.captured_before[bucket]),
            may_double: signed(run.may_double[bucket].saturating_add(newer)),
            unreported: signed(run.may_double_dead[bucket].saturating_add(unreported)),
            is_ended: run.end.is_some(),
            had: true,
            is_out_of_turn: false,
            saw_all: offered.is_exact() && self.offered(bucket) == Some(offered),
        }
    }

    /// How many packets of a bucket the cluster was offered, according to this run.
    pub(super) fn offered(&self, bucket: usize) -> Option<Span> {
        self.run.offered(&self.around, bucket)
    }
}
