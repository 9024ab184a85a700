//! Computes what was offered, captured, doubled and lost.

use std::collections::BTreeMap;

use fanpcap_buckets::layout::BUCKETS;

use super::account::{Account, BucketAccount, NodeAccount};
use super::ledger::Ledger;
use super::life::{Around, Life, Spans};
use super::report::Summary;
use super::span::{Span, signed, sum};

impl Ledger {
    /// The witnesses that live, with their reports around a time.
    pub(super) fn witnesses(&self, time: u64) -> Vec<(&Life, Around<'_>)> {
        let witness = |life: &&Life| life.is_live() && life.before.is_some();
        let around = |life| (life, Life::around(life, time, self.settings.skew));
        self.lives.iter().filter(witness).map(around).collect()
    }

    /// The packets offered of a bucket, according to these witnesses, or without any, to those that
    /// ended.
    pub(super) fn offered(&self, witnesses: &[(&Life, Around<'_>)], bucket: usize) -> Span {
        let spans = witnesses.iter().filter_map(|(life, around)| {
            let exact = life.before.as_ref()?[bucket].is_exact();
            Some((exact, life.offered(around, bucket)?))
        });
        let least = spans.clone().map(|(_, span)| span.least).max();
        let Some(least) = least else {
            return self.floor[bucket];
        };
        let most_exact = spans
            .clone()
            .filter(|(exact, _)| *exact)
            .map(|(_, span)| span.most)
            .max();
        // One that came while packets came counts where it shows more than those that know.
        let shows_more = |(life, around): &(&Life, Around<'_>)| {
            let before = life
                .before
                .as_ref()
                .map_or(i64::MIN, |before| before[bucket].least);
            most_exact.is_none_or(|most| before.saturating_add(around.seen(bucket).most) > most)
        };
        let beyond = witnesses.iter().filter(|witness| shows_more(witness));
        let beyond = beyond.filter_map(|(life, around)| life.offered(around, bucket));
        let most = beyond
            .map(|span| span.most)
            .chain(most_exact)
            .max()
            .unwrap_or(least);
        Span {
            least,
            most: most.max(least),
        }
    }

    /// The packets offered of a bucket until now, according to living and ended witnesses.
    pub(super) fn offered_now(&self, witnesses: &[(&Life, Around<'_>)], bucket: usize) -> Span {
        let offered = self.offered(witnesses, bucket);
        let floor = self.floor[bucket];
        Span {
            least: offered.least.max(floor.least),
            most: offered.most.max(floor.least),
        }
    }

    /// What a life captured of each bucket.
    pub(super) fn captured(&self, life: &Life) -> Box<Spans> {
        let around = life.around(self.time, self.settings.skew);
        let Some(end) = &life.end else {
            let captured = |bucket: usize| life.unbooked[bucket] + around.captured(bucket);
            return Box::new(std::array::from_fn(captured));
        };
        let last = life.last();
        let at = end.at.min(self.time);
        let others = self.witnesses(at);
        let captured = |bucket: usize| {
            let reported = signed(last.captured[bucket]);
            let mut captured = match &end.captured {
                Some(captured) => captured[bucket],
                None if end.owned[bucket] => Span {
                    least: reported,
                    most: reported.saturating_add(self.unseen(life, &others, bucket)),
                },
                None => Span::exactly(reported),
            };
            if self.time < end.at {
                captured.least = captured.least.min(around.captured(bucket).least);
            }
            life.unbooked[bucket] + captured
        };
        Box::new(std::array::from_fn(captured))
    }

    /// What came of a bucket after the last report of an ended life, at most.
    fn unseen(&self, life: &Life, others: &[(&Life, Around<'_>)], bucket: usize) -> i64 {
        let before = life
            .before
            .as_ref()
            .map_or(0, |before| before[bucket].least);
        let known = before.saturating_add(signed(life.last().seen[bucket]));
        let offered = self.offered_now(others, bucket).most;
        offered.saturating_sub(known).max(0)
    }

    /// What became of all packets until the time of the reports that all live nodes have sent.
    pub fn account(&self) -> Account {
        let witnesses = self.witnesses(self.time);
        let captured: Vec<_> = self.lives.iter().map(|life| self.captured(life)).collect();
        let marked = signed(self.sum(self.past_marked, |summary| summary.marked));
        let mut account = Account {
            nodes: self.nodes(),
            since: self.settings.begin,
            time: self.time,
            apart: self.apart(),
            ring: self.sum(self.past_ring, |summary| summary.ring),
            ..Account::default()
        };
        for bucket in 0..BUCKETS {
            let shares = captured.iter().map(|captured| captured[bucket]);
            let shares = shares.chain([self.past[bucket]]);
            let offered = self.offered_now(&witnesses, bucket);
            let row = self.bucket(bucket, offered, shares, marked);
            account.total.offered += row.offered;
            account.total.captured += row.captured;
            account.total.doubles += row.doubles;
            account.total.refused += row.refused;
            account.total.lost += row.lost;
            account.buckets.push(row);
        }
        account
    }

    /// The last reports of all lives, and the sums of `past` ones.
    fn sum(&self, past: u64, count: impl Fn(&Summary) -> u64) -> u64 {
        let lives = self.lives.iter().map(|life| count(&life.last().summary));
        lives.fold(past, u64::saturating_add)
    }

    fn bucket(
        &self,
        bucket: usize,
        offered: Span,
        shares: impl Iterator<Item = Span> + Clone,
        marked: i64,
    ) -> BucketAccount {
        let mut captured = Span::default();
        shares.clone().for_each(|share| captured += share);
        let doubles = if self.settings.analyzed {
            Span::exactly(signed(self.doubles[bucket]))
        } else {
            let greatest = shares.map(|share| share.most).max().unwrap_or(0);
            let beyond = captured.most.saturating_sub(greatest);
            let most = marked.min(beyond).max(0);
            let least = captured.least.saturating_sub(offered.most).max(0);
            Span {
                least,
                most: most.max(least),
            }
        };
        let refused = Span::exactly(signed(self.refused[bucket]));
        let lost = (offered - captured + doubles + refused).not_negative();
        BucketAccount {
            offered,
            captured,
            doubles,
            refused,
            lost,
        }
    }

    fn nodes(&self) -> Vec<NodeAccount> {
        let live = self.lives.iter().filter(|life| life.is_live());
        live.map(|life| NodeAccount {
            node: life.node,
            verdict: life.verdict,
            mirror: life.mirror,
            ring: life.last().summary.ring,
            seen: life.last().seen.iter().sum(),
            captured: life.last().captured.iter().sum(),
        })
        .collect()
    }

    /// How far nodes were apart at most that saw the same of the last beacons.
    pub(super) fn apart(&self) -> Option<u64> {
        let live = self.lives.iter().filter(|life| life.is_live());
        let mut spans = BTreeMap::new();
        for (at, life) in live.enumerate() {
            for beacon in life.reports.iter().map(|report| report.summary.beacon) {
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

/// Packets that a life marked, at most: all that it captured after its last report may be marked.
pub(super) fn marked(life: &Life, captured: &Spans) -> u64 {
    let unseen: i64 = match life.end {
        Some(_) => sum(captured.iter().map(|it| it.most.saturating_sub(it.least))),
        None => 0,
    };
    life.last()
        .summary
        .marked
        .saturating_add(unseen.unsigned_abs())
}
