//! A cluster whose packets are known one by one.
//!
//! Each node switches to a topology at a time of its own, and a hung one goes on capturing by the
//! table that it has. The coordinator keeps the rules of decision 30: a union ends when those that
//! get buckets capture, and some time has passed.

use std::collections::VecDeque;

use fanpcap_buckets::layout::BUCKETS;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use super::fate::Fate;
use crate::identity::{NodeId, Revision};
use crate::witness::{Beacon, Counts, Ledger, LedgerSettings, Report, Span, Summary};

pub(super) const SECOND: u64 = 1_000_000_000;
const STEP: u64 = SECOND / 50;
const SKEW: u64 = SECOND / 5;
const START: u64 = 1_000 * SECOND;
/// Buckets that have packets.
const USED: usize = 5;
/// A silent node is dead after this.
const OFFLINE: u64 = 5 * SECOND;

/// Owners of each used bucket, and in a union the heirs.
#[derive(Clone, Copy)]
struct Table {
    revision: u64,
    owners: [usize; USED],
    heirs: [usize; USED],
}

impl Table {
    fn shares(&self, at: usize, bucket: usize) -> Option<bool> {
        let (owner, heir) = (self.owners[bucket], self.heirs[bucket]);
        (owner == at || heir == at).then_some(owner != heir)
    }
}

struct Node {
    id: NodeId,
    lives: bool,
    since: u64,
    seen: Box<Counts>,
    captured: Box<Counts>,
    shared: Box<Counts>,
    ring: u64,
    /// The node's clock is ahead by so much.
    ahead: u64,
    loss: u64,
    blind: u64,
    /// Packets on their way to its counters: when they arrive, and which.
    way: VecDeque<(u64, usize, u64)>,
    /// No reports until then.
    silent: u64,
    /// No news until then.
    hung: u64,
    /// What it captures by, and when it takes which.
    table: Option<Table>,
    news: VecDeque<(u64, Table)>,
    heard: u64,
    is_ended: bool,
    next: u64,
}

pub(super) struct Model {
    random: Pcg64Mcg,
    now: u64,
    nodes: Vec<Node>,
    table: Table,
    analyzed: bool,
    /// Whether no port lost a packet in which anything moved, and nothing died or hung.
    plain: bool,
    /// Packets that may be uncertain: of the buckets and seconds in question.
    doubtful: [i64; USED],
    offered: Vec<(u64, usize)>,
    /// When each copy was captured, and in which bucket.
    captures: Vec<(u64, usize)>,
    taken: Vec<u8>,
    pub(super) ledger: Ledger,
}

impl Model {
    pub(super) fn new(seed: u64, nodes: usize, analyzed: bool) -> Self {
        let settings = LedgerSettings {
            skew: SKEW,
            begin: START,
            analyzed,
        };
        let owners = std::array::from_fn(|bucket| bucket % nodes);
        let mut model = Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            now: START,
            nodes: Vec::new(),
            table: Table {
                revision: 1,
                owners,
                heirs: owners,
            },
            analyzed,
            plain: true,
            doubtful: [0; USED],
            offered: Vec::new(),
            captures: Vec::new(),
            taken: Vec::new(),
            ledger: Ledger::new(settings),
        };
        (0..nodes).for_each(|_| model.join());
        model.run(2 * SECOND, false);
        model
    }

    pub(super) fn lose(&mut self, node: usize, thousandths: u64) {
        self.nodes[node].loss = thousandths;
        self.plain &= thousandths == 0;
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.next_u64() % below
    }

    fn join(&mut self) {
        let ahead = self.draw(SKEW / 2);
        self.nodes.push(Node {
            id: NodeId(u32::try_from(self.nodes.len()).unwrap()),
            lives: true,
            since: self.now + ahead,
            seen: Box::new([0; BUCKETS]),
            captured: Box::new([0; BUCKETS]),
            shared: Box::new([0; BUCKETS]),
            ring: 0,
            ahead,
            loss: 0,
            blind: 0,
            way: VecDeque::new(),
            silent: 0,
            hung: 0,
            table: Some(self.table),
            news: VecDeque::new(),
            heard: self.now,
            is_ended: false,
            next: 0,
        });
    }

    pub(super) fn meet(&mut self, fate: Fate) {
        // The first node stays and loses nothing: a packet that no port gave is in no count.
        let others = |which: u8, nodes: usize| 1 + usize::from(which) % (nodes - 1).max(1);
        let at = |which| others(which, self.nodes.len());
        match fate {
            Fate::Join => {
                self.plain = false;
                self.join();
            }
            Fate::Restart(which) => self.restart(at(which)),
            Fate::Die(which) => self.die(at(which)),
            Fate::Move(from, to) => self.shift(at(from), usize::from(to) % self.nodes.len()),
            Fate::Rest => self.run(3 * SECOND, false),
            Fate::Pause(which) => {
                let at = at(which);
                if let Some(node) = self.nodes.get_mut(at) {
                    node.silent = self.now + 4 * SECOND;
                }
            }
            Fate::Hang(which, seconds) => self.hang(at(which), seconds),
            Fate::Blind(which, seconds) => {
                let at = at(which);
                // With two bad ports of three the median is no judge: that is another test.
                let now = self.now;
                let is_bad = |node: &Node| node.loss > 0 || node.blind + 20 * SECOND > now;
                let mut others = self
                    .nodes
                    .iter()
                    .enumerate()
                    .filter(|(other, _)| *other != at);
                if others.any(|(_, node)| is_bad(node)) {
                    return;
                }
                if let Some(node) = self.nodes.get_mut(at) {
                    node.blind = self.now + u64::from(seconds) * SECOND;
                    self.plain = false;
                }
            }
        }
    }

    /// Marks packets of these buckets as uncertain, from the reports before `since` on. Two nodes
    /// may each have captured a packet by what is a topology of before.
    fn doubt(&mut self, is_doubtful: impl Fn(usize) -> bool, since: u64, until: u64) {
        let since = since.saturating_sub(2 * SECOND);
        for (at, bucket) in &self.offered {
            if is_doubtful(*bucket) && since <= *at && *at <= until {
                self.doubtful[*bucket] += 2;
            }
        }
    }

    /// As after a reboot. What the node captured after its last report is known, as in `die`.
    fn restart(&mut self, at: usize) {
        if self.nodes.get(at).is_none_or(|node| !node.lives) {
            return;
        }
        let before = self.now;
        self.end(at);
        let (now, table) = (self.now, self.table);
        let node = &mut self.nodes[at];
        node.way.clear();
        node.since = now + node.ahead;
        *node.seen = [0; BUCKETS];
        *node.captured = [0; BUCKETS];
        *node.shared = [0; BUCKETS];
        node.ring = 0;
        node.news.clear();
        (node.table, node.hung, node.silent) = (Some(table), 0, 0);
        (node.lives, node.is_ended, node.heard) = (true, false, now);
        // Until its first reports it is not known by which topology it captures.
        self.run(2 * SECOND, true);
        self.doubt(|bucket| table.owners[bucket] == at, before, self.now);
    }

    fn end(&mut self, at: usize) {
        let exactly = |count: u64| Span::exactly(i64::try_from(count).unwrap());
        let captured = self
            .analyzed
            .then(|| Box::new(self.nodes[at].captured.map(exactly)));
        self.plain = false;
        let node = &mut self.nodes[at];
        let table = node.table;
        let owned = |bucket: usize| {
            bucket < USED && table.is_none_or(|table| table.shares(at, bucket).is_some())
        };
        self.ledger
            .end(node.id, self.now + node.ahead, captured, owned);
        (node.lives, node.is_ended) = (false, true);
    }

    fn die(&mut self, at: usize) {
        if self.nodes.get(at).is_none_or(|node| !node.lives) {
            return;
        }
        self.plain = false;
        let (before, table) = (self.now, self.nodes[at].table);
        let since = before.min(self.nodes[at].heard);
        self.nodes[at].lives = false;
        self.run(3 * SECOND, true);
        if !self.nodes[at].is_ended {
            self.end(at);
        }
        let owns = |bucket| table.is_none_or(|table| table.shares(at, bucket).is_some());
        self.doubt(owns, since, self.now);
        self.reassign(at, 0);
    }

    fn hang(&mut self, at: usize, seconds: u8) {
        let lives = self.nodes.get(at).is_some_and(|node| node.lives);
        if !lives || self.nodes[at].hung > self.now {
            return;
        }
        let (before, table) = (self.now, self.nodes[at].table);
        let until = self.now + u64::from(seconds) * SECOND;
        let node = &mut self.nodes[at];
        (node.hung, node.silent) = (until, until);
        self.plain = false;
        if seconds > 6 {
            self.run(OFFLINE + SECOND, true);
            self.reassign(at, 0);
        }
        let left = until.saturating_sub(self.now);
        self.run(left + 2 * SECOND, true);
        let owns = |bucket| table.is_none_or(|table| table.shares(at, bucket).is_some());
        self.doubt(owns, before, self.now);
    }

    fn shift(&mut self, from: usize, to: usize) {
        let able = |at: usize| {
            self.nodes
                .get(at)
                .is_some_and(|node| node.lives && node.hung <= self.now)
        };
        if able(from) && able(to) {
            self.reassign(from, to);
        }
    }

    /// Gives all buckets of a node to another: by a union, and a stable topology when the heir has
    /// captured for a while.
    fn reassign(&mut self, from: usize, to: usize) {
        let (before, owners) = (self.now, self.table.owners);
        let heirs = owners.map(|owner| if owner == from { to } else { owner });
        self.tell(owners, heirs);
        self.run(SECOND * 6 / 10, true);
        self.tell(heirs, heirs);
        self.run(SECOND, true);
        let moved = |bucket: usize| owners[bucket] != heirs[bucket];
        self.doubt(moved, before, self.now);
    }

    fn tell(&mut self, owners: [usize; USED], heirs: [usize; USED]) {
        self.table = Table {
            revision: self.table.revision + 1,
            owners,
            heirs,
        };
        for at in 0..self.nodes.len() {
            let late = self.draw(SECOND / 4);
            let (now, table) = (self.now, self.table);
            let node = &mut self.nodes[at];
            node.news.push_back((node.hung.max(now) + late, table));
        }
    }

    pub(super) fn run(&mut self, time: u64, packets: bool) {
        let until = self.now + time;
        while self.now < until {
            self.now += STEP;
            for node in self.nodes.iter_mut().filter(|node| node.lives) {
                let now = self.now;
                while node.news.front().is_some_and(|(due, _)| *due <= now) {
                    node.table = node.news.pop_front().map(|(_, table)| table);
                }
            }
            let count = if packets { self.draw(12) } else { 0 };
            (0..count).for_each(|_| self.offer());
            self.count();
            self.report();
        }
    }

    fn offer(&mut self) {
        let bucket = usize::try_from(self.draw(USED as u64)).unwrap();
        let number = self.offered.len() as u64;
        self.offered.push((self.now, bucket));
        self.taken.push(0);
        for at in 0..self.nodes.len() {
            let (lost, delay) = (self.draw(1000), self.draw(SKEW / 2));
            let now = self.now;
            let node = &mut self.nodes[at];
            if node.lives && lost >= node.loss && node.blind <= now {
                node.way.push_back((now + delay, bucket, number));
            }
        }
    }

    /// Packets reach the nodes' counters.
    fn count(&mut self) {
        for at in 0..self.nodes.len() {
            let way = std::mem::take(&mut self.nodes[at].way);
            for (due, bucket, number) in way {
                if due > self.now {
                    self.nodes[at].way.push_back((due, bucket, number));
                } else if self.nodes[at].lives {
                    self.arrive(at, bucket, number);
                }
            }
        }
    }

    fn arrive(&mut self, at: usize, bucket: usize, number: u64) {
        // Where packets pass to the host, there is no ring.
        let full = self.analyzed && self.draw(40) == 0;
        let node = &mut self.nodes[at];
        node.seen[bucket] += 1;
        let Some(is_shared) = node.table.and_then(|table| table.shares(at, bucket)) else {
            return;
        };
        node.shared[bucket] += u64::from(is_shared);
        if full {
            node.ring += 1;
            return;
        }
        node.captured[bucket] += 1;
        let taken = &mut self.taken[usize::try_from(number).unwrap()];
        *taken += 1;
        self.captures.push((self.now, bucket));
        if *taken > 1 && self.analyzed {
            let doubles = self.doubles_of(bucket);
            self.ledger.doubles(bucket, u64::try_from(doubles).unwrap());
        }
    }

    fn report(&mut self) {
        for at in 0..self.nodes.len() {
            let pause = SECOND / 2 + self.draw(SECOND / 2);
            let now = self.now;
            let node = &mut self.nodes[at];
            if !node.lives || now < node.next.max(node.silent) {
                continue;
            }
            node.next = now + pause;
            (node.heard, node.is_ended) = (now, false);
            let report = node.report(now);
            self.ledger.take(report).unwrap();
        }
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            if node.lives && !node.is_ended && node.heard + OFFLINE < self.now {
                self.end(at);
                self.nodes[at].lives = true;
            }
        }
        if self.now % (SECOND / 2) == 0 {
            self.ledger.settle();
        }
    }

    /// What the ledger says holds the truth, at the time that it says it of.
    pub(super) fn check(&self) {
        let account = self.ledger.account();
        let until = |list: &[(u64, usize)], bucket: usize| {
            let there = list
                .iter()
                .filter(|item| item.0 <= account.time && item.1 == bucket);
            i64::try_from(there.count()).unwrap()
        };
        for bucket in 0..USED {
            let row = account.buckets[bucket];
            let offered = until(&self.offered, bucket);
            let captured = until(&self.captures, bucket);
            let say = || {
                format!(
                    "{bucket} of {}: {row:?}, offered {offered}, captured {captured}",
                    account.time
                )
            };
            assert!(row.offered.has(offered), "{}", say());
            assert!(row.captured.has(captured), "{}", say());
        }
    }

    /// What the ledger says at rest holds the truth, bucket by bucket and in all.
    pub(super) fn check_at_rest(&self) -> Result<(), String> {
        let account = self.ledger.account();
        for (bucket, row) in account.buckets.iter().enumerate().take(USED) {
            let (doubles, lost) = (self.doubles_of(bucket), self.lost_of(bucket));
            let width = |span: Span| span.most - span.least;
            let most = if self.plain { 0 } else { self.doubtful[bucket] };
            let is_wide = width(row.doubles) > most || width(row.lost) > most;
            if is_wide {
                return Err(format!("bucket {bucket}: {row:?}, wider than {most}"));
            }
            if !row.doubles.has(doubles) || !row.lost.has(lost) {
                return Err(format!(
                    "bucket {bucket}: {row:?}, doubles {doubles}, lost {lost}"
                ));
            }
        }
        Ok(())
    }

    fn doubles_of(&self, bucket: usize) -> i64 {
        let taken = self.taken.iter().zip(&self.offered);
        let of_bucket = taken.filter(|(_, offered)| offered.1 == bucket);
        of_bucket
            .map(|(&taken, _)| i64::from(taken.saturating_sub(1)))
            .sum()
    }

    fn lost_of(&self, bucket: usize) -> i64 {
        let taken = self.taken.iter().zip(&self.offered);
        let lost = taken.filter(|(taken, offered)| **taken == 0 && offered.1 == bucket);
        i64::try_from(lost.count()).unwrap()
    }

    pub(super) fn lost(&self) -> i64 {
        (0..USED).map(|bucket| self.lost_of(bucket)).sum()
    }
}

impl Node {
    fn report(&self, now: u64) -> Report {
        let summary = Summary {
            node: self.id,
            boot: 1,
            since: self.since,
            stamp: now + self.ahead,
            revision: Revision(self.table.map_or(0, |table| table.revision)),
            ring: self.ring,
            beacon: Beacon::default(),
        };
        Report {
            summary,
            seen: self.seen.clone(),
            captured: self.captured.clone(),
            shared: self.shared.clone(),
        }
    }
}
