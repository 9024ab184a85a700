//! Draws conclusions of the reports: whom to believe, and what is certain by now.

use fanpcap_buckets::layout::BUCKETS;

use super::balance::marked;
use super::judge::judge;
use super::ledger::Ledger;
use super::life::{Around, Booked, Life, Spans, zeros};
use super::span::{Span, signed, sum};
use crate::identity::NodeId;
use crate::topology::NODES;

/// A packet waits so long for its node's CPU, in nanoseconds: nodes were measured to be 100 ms
/// apart in that on a busy machine.
const WAIT: u64 = 100_000_000;

impl Ledger {
    /// Draws the conclusions of the reports so far. Call it about once a second.
    pub fn settle(&mut self) {
        let skew = self.skew();
        let newest = |life: &Life| life.last().summary.stamp.saturating_sub(skew);
        let live = || self.lives.iter().filter(|life| life.is_live());
        let Some(time) = live().map(newest).min() else {
            return;
        };
        if time < self.time && skew > self.settings.skew {
            // Until reports reach as far.
            return;
        }
        self.settings.skew = skew;
        self.time = self.time.max(time);
        self.judge();
        self.align();
        self.rest();
        self.name_lossy();
        self.bury();
    }

    /// How far nodes are apart: by beacons, where all nodes have them.
    fn skew(&self) -> u64 {
        let live = || self.lives.iter().filter(|life| life.is_live());
        let beacon = |life: &Life| life.last().summary.beacon.sequence;
        let newest = live().map(beacon).max().unwrap_or(0);
        let all = newest > 0 && live().all(|life| beacon(life) + 3 > newest);
        match self.apart().filter(|_| all) {
            Some(apart) => apart.saturating_mul(2).saturating_add(WAIT),
            None => self.without_beacons,
        }
    }

    /// Gives every live node its verdict by what came since the oldest reports that all kept.
    fn judge(&mut self) {
        let skew = self.settings.skew;
        let live: Vec<&Life> = self.lives.iter().filter(|life| life.is_live()).collect();
        let oldest = live.iter().map(|life| life.reports[0].summary.stamp).max();
        let from = oldest.unwrap_or(0).saturating_add(skew);
        if from >= self.time || live.len() < 2 {
            return;
        }
        let around = |time| {
            live.iter()
                .map(|life| life.around(time, skew))
                .collect::<Vec<_>>()
        };
        let verdicts = judge(&live, &around(from), &around(self.time));
        let stamp = self.time.saturating_add(skew);
        let lives = self.lives.iter_mut().filter(|life| life.is_live());
        for (life, verdict) in lives.zip(verdicts) {
            life.verdict = verdict;
            if !verdict.is_believed() {
                life.before = None;
                life.from = stamp;
            }
        }
    }

    /// Makes witnesses of the lives that are none yet.
    fn align(&mut self) {
        let mut order: Vec<usize> = (0..self.lives.len()).collect();
        order.sort_by_key(|&at| self.lives[at].since);
        for at in order {
            let life = &self.lives[at];
            if life.before.is_some() || !life.verdict.is_believed() {
                continue;
            }
            if !self.begun {
                self.begin_with(at);
            } else if let Some((before, unbooked)) = self.before(life) {
                let offered = self.offered_in_all();
                let life = &mut self.lives[at];
                life.offered = offered;
                life.before = Some(before);
                // A life that was no witness for a while goes on with what it had captured.
                if !life.booked && life.since < self.settings.begin {
                    life.unbooked = unbooked;
                }
                life.booked = true;
            }
        }
    }

    /// The first witness: the ledger begins with what it has not counted yet.
    fn begin_with(&mut self, at: usize) {
        let begin = self.settings.begin;
        let life = &mut self.lives[at];
        if life.since >= begin {
            life.before = Some(zeros());
        } else {
            let first = &life.reports[0];
            self.settings.begin = first.summary.stamp;
            let minus = |count: u64| Span::exactly(-signed(count));
            life.before = Some(Box::new(first.seen.map(minus)));
            *life.unbooked = first.captured.map(minus);
        }
        life.booked = true;
        self.begun = true;
    }

    /// The packets that the cluster was offered before `life`'s counts, and those that the life
    /// captured before the ledger's start. `None` until the reports of all reach far enough.
    fn before(&self, life: &Life) -> Option<(Box<Spans>, Box<Spans>)> {
        let (skew, begin) = (self.settings.skew, self.settings.begin);
        let fresh = life.from == life.since && life.since >= begin;
        let time = if fresh {
            life.since
        } else {
            let first = life
                .reports
                .iter()
                .find(|report| report.summary.stamp >= life.from)?;
            first.summary.stamp.max(begin).saturating_add(skew)
        };
        if time > self.time {
            return None;
        }
        let around = life.around(time, skew);
        let booked = life.around(begin, skew);
        let others = self.witnesses(time);
        let before = |bucket: usize| {
            let seen = if fresh {
                Span::default()
            } else {
                around.seen(bucket)
            };
            self.offered(&others, bucket) - seen
        };
        // What it had captured by its first report, less what can have come since the begin.
        let first = &life.reports[0];
        let unbooked = |bucket: usize| {
            let mut booked = booked.captured(bucket);
            let come = self.offered(&others, bucket).most.max(0);
            let least = signed(first.captured[bucket]).saturating_sub(come);
            booked.least = booked.least.max(least);
            Span::default() - booked
        };
        Some((
            Box::new(std::array::from_fn(before)),
            Box::new(std::array::from_fn(unbooked)),
        ))
    }

    /// For a bucket without traffic, all witnesses are set to the same number of packets offered.
    fn rest(&mut self) {
        let witnesses = self.witnesses(self.time);
        let resting = |bucket: usize| {
            let still = |(_, around): &(&Life, Around<'_>)| {
                around.after.is_some() && around.seen(bucket).is_exact()
            };
            let offered = self.offered_now(&witnesses, bucket);
            (!witnesses.is_empty() && witnesses.iter().all(still)).then_some(offered)
        };
        let resting: Vec<Option<Span>> = (0..BUCKETS).map(resting).collect();
        let time = self.time;
        for life in &mut self.lives {
            let around = life.around(time, self.settings.skew);
            let seen: Box<Spans> = Box::new(std::array::from_fn(|bucket| around.seen(bucket)));
            let Some(before) = life.before.as_mut().filter(|_| life.end.is_none()) else {
                continue;
            };
            for (bucket, offered) in resting.iter().enumerate() {
                if let Some(offered) = *offered {
                    let known = (before[bucket] + seen[bucket]).most;
                    let lacks = offered.least.saturating_sub(known);
                    life.mirror = life.mirror.saturating_add(lacks.max(0));
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

    /// Names the ports that lost packets, as far as that is certain.
    fn name_lossy(&mut self) {
        let witnesses = self.witnesses(self.time);
        let offered: Vec<Span> = (0..BUCKETS)
            .map(|bucket| self.offered_now(&witnesses, bucket))
            .collect();
        let total = sum(offered.iter().map(|span| span.least));
        let lacks = |(life, around): &(&Life, Around<'_>)| {
            let seen = |bucket| {
                life.offered(around, bucket)
                    .map_or(i64::MAX, |seen| seen.most)
            };
            let lacks = |bucket: usize| offered[bucket].least.saturating_sub(seen(bucket)).max(0);
            let lacks = sum((0..BUCKETS).map(lacks));
            (life.node, life.mirror.saturating_add(lacks))
        };
        let lacks: Vec<(NodeId, i64)> = witnesses.iter().map(lacks).collect();
        for (node, lacks) in lacks {
            let of_node = |life: &&mut Life| life.node == node && life.is_live();
            if let Some(life) = self.lives.iter_mut().find(of_node) {
                life.name_lossy(lacks, total);
            }
        }
    }

    fn offered_in_all(&self) -> i64 {
        let witnesses = self.witnesses(self.time);
        sum((0..BUCKETS).map(|bucket| self.offered_now(&witnesses, bucket).least))
    }

    /// Books the ended lives whose end all reports have reached.
    fn bury(&mut self) {
        let time = self.time;
        let due = |life: &Life| life.end.as_ref().is_some_and(|end| end.at <= time);
        let ended: Vec<Life> = self
            .lives
            .iter()
            .filter(|life| due(life))
            .cloned()
            .collect();
        for life in &ended {
            let captured = self.captured(life);
            for (bucket, captured) in captured.iter().enumerate() {
                self.past[bucket] += *captured;
                if let Some(before) = &life.before {
                    let seen = signed(life.last().seen[bucket]);
                    let seen = before[bucket].least.saturating_add(seen);
                    let floor = &mut self.floor[bucket];
                    floor.least = floor.least.max(seen);
                    floor.most = floor.most.max(floor.least);
                }
            }
            let marked = marked(life, &captured);
            self.past_marked = self.past_marked.saturating_add(marked);
            let ring = life.last().summary.ring;
            self.past_ring = self.past_ring.saturating_add(ring);
            self.remember(life, captured, marked);
        }
        self.lives.retain(|life| !due(life));
    }

    fn remember(&mut self, life: &Life, captured: Box<Spans>, marked: u64) {
        let mut life = life.clone();
        life.reports.drain(..life.reports.len() - 1);
        if self.booked.len() == NODES {
            self.booked.pop_front();
        }
        let booked = Booked {
            life,
            captured,
            marked,
        };
        self.booked.push_back(booked);
    }
}
