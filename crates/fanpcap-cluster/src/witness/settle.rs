//! Draws conclusions of the reports: whom to believe, and what is certain by now.

use fanpcap_buckets::layout::BUCKETS;

use super::history::note;
use super::judge::judge;
use super::ledger::Ledger;
use super::life::{Age, Around, Life, Spans, zeros};
use super::span::{Span, signed, sum};
use crate::identity::NodeId;
use crate::topology::NODES;

/// A packet waits so long for its node's CPU, in nanoseconds: nodes were measured to be 100 ms
/// apart in that on a busy machine.
const WAIT: u64 = 100_000_000;

/// A node that was silent may go on with its counters for so long after it counted as dead, in
/// nanoseconds.
const PATIENCE: u64 = 120_000_000_000;

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
        self.compare();
        self.reach_ends();
        self.judge_ports();
        for life in self.lives.iter_mut().filter(|life| life.end.is_none()) {
            note(&mut self.history, life, self.time);
        }
        self.rest();
        self.give_up();
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
        if from >= self.time {
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
            let Some(verdict) = verdict else {
                continue;
            };
            (life.verdict, life.judged) = (verdict, self.time);
            if !verdict.is_believed() {
                life.before = None;
                life.from = stamp;
                life.port.begin_anew();
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
                let life = &mut self.lives[at];
                life.before = Some(before);
                // A life that was no witness for a while goes on with what it had captured.
                if !life.booked && life.age != Age::New {
                    life.unbooked = unbooked;
                }
                life.booked = true;
            }
        }
    }

    /// The first witness: the ledger begins with what it has not counted yet.
    fn begin_with(&mut self, at: usize) {
        let life = &mut self.lives[at];
        if life.age == Age::New {
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
        let fresh = life.from == life.since && life.age == Age::New;
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
            if life.age == Age::Resumed {
                return Span::exactly(-signed(first.captured[bucket]));
            }
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

    /// Judges the ports of the witnesses by the packets that they lack.
    fn judge_ports(&mut self) {
        let time = self.time;
        let witnesses = self.witnesses(time);
        let offered: Vec<Span> = (0..BUCKETS)
            .map(|bucket| self.offered_now(&witnesses, bucket))
            .collect();
        let total = sum(offered.iter().map(|span| span.least));
        let lacks = |(life, around): &(&Life, Around<'_>)| {
            let lacks = |bucket: usize| match life.offered(around, bucket) {
                Some(seen) => offered[bucket] - seen,
                None => Span::default(),
            };
            (life.node, (0..BUCKETS).map(lacks).collect())
        };
        let lacks: Vec<(NodeId, Vec<Span>)> = witnesses.iter().map(lacks).collect();
        for (node, lacks) in lacks {
            let of_node = |life: &&mut Life| life.node == node && life.is_live();
            if let Some(life) = self.lives.iter_mut().find(of_node) {
                life.port.judge(time, &lacks, life.mirror, total);
            }
        }
    }

    /// Notes of the lives whose end all reports have reached what they captured in all, and raises
    /// the floor to what they saw.
    fn reach_ends(&mut self) {
        for at in 0..self.lives.len() {
            let life = &self.lives[at];
            let Some(end) = life.end.as_ref() else {
                continue;
            };
            if end.is_reached || end.at > self.time {
                continue;
            }
            let captured = self.captured_until_end(life, end);
            if let Some(before) = &life.before {
                let last = life.last();
                for (bucket, floor) in self.floor.iter_mut().enumerate() {
                    let seen = before[bucket]
                        .least
                        .saturating_add(signed(last.seen[bucket]));
                    floor.least = floor.least.max(seen);
                    floor.most = floor.most.max(floor.least);
                }
            }
            if let Some(end) = self.lives[at].end.as_mut() {
                (end.captured, end.is_reached) = (Some(captured), true);
            }
        }
    }

    /// Adds the counts of ended lives that will not go on to the sums.
    fn give_up(&mut self) {
        let is_over = |life: &Life| {
            let end = life.end.as_ref().filter(|end| end.is_reached);
            let newer = |other: &Life| other.node == life.node && other.since > life.since;
            end.is_some_and(|end| {
                let is_newer = self.lives.iter().any(newer) && self.is_compared(end);
                end.at.saturating_add(PATIENCE) <= self.time || is_newer
            })
        };
        let over: Vec<bool> = self.lives.iter().map(is_over).collect();
        if !over.contains(&true) {
            return;
        }
        let witnesses = self.witnesses(self.time);
        let offered: Vec<Span> = (0..BUCKETS)
            .map(|bucket| self.offered_now(&witnesses, bucket))
            .collect();
        let gone: Vec<_> = (self.shares().into_iter().zip(&over))
            .filter(|(_, is_over)| **is_over)
            .map(|(share, _)| {
                let part = |bucket| self.part(&share, bucket, offered[bucket]);
                let life = share.life;
                let parts: Vec<_> = (0..BUCKETS).map(part).collect();
                let ring = life.last().summary.ring;
                let end = life.end.as_ref().map_or(0, |end| end.at);
                (
                    (life.node, life.boot, life.since),
                    end,
                    ring,
                    share.captured,
                    parts,
                )
            })
            .collect();
        for (counters, end, ring, captured, parts) in gone {
            self.over = self.over.max(end);
            for (bucket, part) in parts.iter().enumerate() {
                self.intervals[bucket].gone.add(part);
                self.past[bucket] += captured[bucket];
            }
            self.past_ring = self.past_ring.saturating_add(ring);
            if self.given_up.len() == NODES {
                self.given_up.pop_front();
            }
            self.given_up.push_back(counters);
        }
        let mut over = over.into_iter();
        self.lives.retain(|_| over.next() != Some(true));
    }
}
