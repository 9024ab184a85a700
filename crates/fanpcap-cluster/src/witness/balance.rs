//! Computes what was offered, captured, doubled and lost.

use std::collections::BTreeMap;

use fanpcap_buckets::layout::BUCKETS;

use super::account::{Account, BucketAccount, NodeAccount};
use super::interval::{Part, Parts};
use super::ledger::Ledger;
use super::life::{Around, End, Life, Spans};
use super::report::{Report, Summary};
use super::span::{Span, signed};

/// A witness, with its reports around a time.
pub(super) type Witness<'a> = (&'a Life, Around<'a>);

impl Ledger {
    /// The witnesses that live, with their reports around a time.
    pub(super) fn witnesses(&self, time: u64) -> Vec<Witness<'_>> {
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
        let ended = self.captured_until_end(life, end);
        let captured = |bucket: usize| {
            let mut captured = ended[bucket];
            if self.time < end.at {
                captured.least = captured.least.min(around.captured(bucket).least);
            }
            life.unbooked[bucket] + captured
        };
        Box::new(std::array::from_fn(captured))
    }

    /// What an ended life's counters had captured of each bucket in all.
    pub(super) fn captured_until_end(&self, life: &Life, end: &End) -> Box<Spans> {
        if let Some(captured) = &end.captured {
            return captured.clone();
        }
        let last = life.last();
        let before = self.witnesses(last.summary.stamp);
        let until = self.witnesses(end.at.min(self.time));
        let captured = |bucket: usize| {
            let reported = signed(last.captured[bucket]);
            let unseen = match end.owned[bucket] {
                true => self.unseen(life, [&before, &until], bucket),
                false => 0,
            };
            Span {
                least: reported,
                most: reported.saturating_add(unseen),
            }
        };
        Box::new(std::array::from_fn(captured))
    }

    /// What came of a bucket after the last report of an ended life, at most, according to the
    /// witnesses at that report and at the end.
    fn unseen(&self, life: &Life, [then, end]: [&[Witness<'_>]; 2], bucket: usize) -> i64 {
        let before = life
            .before
            .as_ref()
            .map_or(0, |before| before[bucket].least);
        let known = before.saturating_add(signed(life.last().seen[bucket]));
        // Its port may have lost packets before.
        let offered = |(life, around): &Witness<'_>| life.offered(around, bucket);
        let then = then.iter().filter_map(offered).map(|span| span.least).min();
        let known = known.max(then.unwrap_or(i64::MIN));
        let offered = self.offered_now(end, bucket).most;
        offered.saturating_sub(known).max(0)
    }

    /// What became of all packets until the time of the reports that all live nodes have sent.
    pub fn account(&self) -> Account {
        let witnesses = self.witnesses(self.time);
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
        for bucket in 0..BUCKETS {
            let offered = self.offered_now(&witnesses, bucket);
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

    /// The last reports of all lives, and the sums of `past` ones.
    fn sum(&self, past: u64, count: impl Fn(&Summary) -> u64) -> u64 {
        let lives = self.lives.iter().map(|life| count(&life.last().summary));
        lives.fold(past, u64::saturating_add)
    }

    /// What the counts of each life say until the time of the account.
    pub(super) fn shares(&self) -> Vec<Share<'_>> {
        let share = |life| self.share(life);
        self.lives.iter().map(share).collect()
    }

    fn share<'a>(&'a self, life: &'a Life) -> Share<'a> {
        let around = life.around(self.time, self.settings.skew);
        Share {
            life,
            captured: self.captured(life),
            around,
            newest: around.after.unwrap_or(life.last()),
            compared: life.compared(),
        }
    }

    fn bucket(&self, bucket: usize, offered: Span, shares: &[Share<'_>]) -> BucketAccount {
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
            let (doubles, lost) = self.parts(bucket, offered, shares).outcome(interval);
            let before = self.closed[bucket];
            (row.doubles, row.lost) = (before.0 + doubles, before.1 + lost);
        }
        row
    }

    /// What all lives have of a bucket's interval.
    pub(super) fn parts(&self, bucket: usize, offered: Span, shares: &[Share<'_>]) -> Parts {
        let mut parts = self.intervals[bucket].gone;
        for share in shares {
            parts.add(&self.part(share, bucket, offered));
        }
        parts
    }

    /// What a life has of a bucket's interval.
    pub(super) fn part(&self, share: &Share<'_>, bucket: usize, offered: Span) -> Part {
        Part {
            is_out_of_turn: self.is_out_of_turn(share.life, bucket),
            ..share.part(bucket, offered)
        }
    }

    fn nodes(&self) -> Vec<NodeAccount> {
        let live = self.lives.iter().filter(|life| life.is_live());
        live.map(|life| NodeAccount {
            node: life.node,
            verdict: life.named(self.time),
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

/// What the counts of a life say until the time of the account.
#[derive(Debug)]
pub(super) struct Share<'a> {
    pub(super) life: &'a Life,
    /// What it captured of each bucket.
    pub(super) captured: Box<Spans>,
    pub(super) around: Around<'a>,
    /// The report that has all until then, or the last one.
    pub(super) newest: &'a Report,
    /// The newest report of which it is known whether the topology was replaced.
    compared: Option<&'a Report>,
}

impl Share<'_> {
    /// What the life has of a bucket's interval.
    pub(super) fn part(&self, bucket: usize, offered: Span) -> Part {
        let life = self.life;
        let compared = self.compared.map_or(0, |report| report.alone(bucket));
        let newer = self.newest.alone(bucket).saturating_sub(compared);
        let shared = self.newest.shared[bucket].saturating_sub(life.shared_before[bucket]);
        Part {
            captured: self.captured[bucket].since(life.captured_before[bucket]),
            shared: signed(shared),
            stale: signed(life.stale[bucket].saturating_add(newer)),
            is_ended: life.end.is_some(),
            is_out_of_turn: false,
            saw_all: offered.is_exact() && self.offered(bucket) == Some(offered),
        }
    }

    /// What the cluster was offered of a bucket, according to this life.
    pub(super) fn offered(&self, bucket: usize) -> Option<Span> {
        self.life.offered(&self.around, bucket)
    }
}
